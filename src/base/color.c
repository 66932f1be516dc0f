// SPDX-License-Identifier: Apache-2.0
#include "base/color.h"

#include "base/terminal.h"

#include <stdlib.h>

static enum color_when setting = COLOR_AUTO;

void color_set(enum color_when when) { setting = when; }

bool color_is_on(int fd)
{
    const char *no = getenv("NO_COLOR");
    if (setting != COLOR_AUTO) return setting == COLOR_ALWAYS;
    return terminal_is(fd) && !terminal_is_dumb() && !(no && *no);
}
