/* import.h -- `llamero config import`. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

/* argv[0] is the file; what follows is for it: settings, variables, flags. */
enum status import_run(int argc, char **argv);
