/* env.h -- environment variables as the tools of Hugging Face and AWS read them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

/* The variable's value; NULL: unset or empty. */
const char *env_find(const char *name);
/* *value: whether the variable is 1, ON, YES or TRUE.  CONFIG: it is neither that nor 0, OFF, NO,
 * FALSE or unset. */
enum status env_read_bool(const char *name, bool *value);
