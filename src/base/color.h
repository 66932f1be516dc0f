/* color.h -- whether output is colored, and which characters a terminal shows.  The process has one
 * setting, --color. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

/* In the order of the words of --color (app/flags.h). */
enum color_when { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

/* Call before threads start.  AUTO, the default: on a terminal, unless TERM is unset or "dumb", or
 * NO_COLOR is set and not empty. */
void color_set(enum color_when when);
/* Whether what goes to this file descriptor is colored. */
bool color_is_on(int fd);

/* Whether the locale's characters are UTF-8: by LC_ALL, LC_CTYPE or LANG, the first that is set. */
bool color_is_utf8(void);
