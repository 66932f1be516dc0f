/* shell_arithmetic.h -- evaluates the expression in $((...)), after its expansion. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell.h"

#include <stdint.h>

/* Appends to *unknown, separated by commas, the variables and commands whose values are known only
 * when the script runs; none: *out is the value.  CONFIG: syntax errors, overflow, division by
 * 0. */
enum status shell_arithmetic_evaluate(const struct shell *s, const char *text, int line,
                                      int64_t *out, struct text *unknown);
/* Parses a whole number between blanks. */
bool shell_arithmetic_number(const char *text, int64_t *out);
