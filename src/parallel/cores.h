/* cores.h -- the cores of a host, shared out among the ranks on it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* Cores that this rank computes on, at least one: all that a launcher bound it to; where others of
 * its host may use them too, an even share.  Collective.  COMM: a rank is gone. */
enum status cores_share(const struct comm *world, int *cores);
