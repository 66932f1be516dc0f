/* shell_parse.h -- parses a shell script and follows it in the order it would run. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell.h"

/* `line`: the number of the first line.  CONFIG: syntax errors and exceeded limits; the message has
 * file:line. */
enum status shell_parse(struct shell *s, const char *bytes, size_t len, int line);
