/* escape.h -- control characters made visible, so that a name from a file cannot move a terminal's
 * cursor or forge a line of a log.  FAIL escapes its arguments (status.h); log_line and printf do
 * not: their callers escape what comes from files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

/* Copies `from` with its control characters escaped, as "\n" or "\x1b", except those in `keep`.
 * Cut at `size` bytes with the NUL, between characters of UTF-8; returns `to`. */
char *escape_controls(char *to, size_t size, const char *from, const char *keep);
