/* env.h -- environment variables as the tools of Hugging Face and AWS read them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

/* The variable's value; NULL: unset or empty. */
const char *env_find(const char *name);
bool env_is_true(const char *name); /* 1, ON, YES or TRUE */
