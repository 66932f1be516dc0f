/* self.h -- the group of one rank. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

struct comm comm_self(void);
