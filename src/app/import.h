/* import.h -- `llamero config import`. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

/* argv[0] is the file, or a flag; arguments after the file belong to it: settings, variables. */
enum status import_run(int argc, char **argv);
