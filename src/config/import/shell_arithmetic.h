/* shell_arithmetic.h -- evaluates the expression in $((...)), after its expansion. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell.h"

#include <stdint.h>

/* Sets *known to false if a value is known only when the script runs.  CONFIG: syntax errors,
 * overflow, division by 0. */
enum status shell_arithmetic_evaluate(const struct shell *s, const char *text, int line,
                                      int64_t *out, bool *known);
/* Parses a whole number between blanks. */
bool shell_arithmetic_number(const char *text, int64_t *out);
