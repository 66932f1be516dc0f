// SPDX-License-Identifier: Apache-2.0
#include "base/color.h"
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum color_when setting = COLOR_AUTO;

void color_set(enum color_when when) { setting = when; }

bool color_is_on(int fd)
{
    const char *no = getenv("NO_COLOR");
    if (setting != COLOR_AUTO) return setting == COLOR_ALWAYS;
    return terminal_is(fd) && !(no && *no) && !terminal_is_dumb();
}

bool color_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        const char *dot = value ? strchr(value, '.') : NULL;
        if (!value || !*value) continue;
        return dot && (!strncasecmp(dot, ".utf-8", 6) || !strncasecmp(dot, ".utf8", 5));
    }
    return false;
}
