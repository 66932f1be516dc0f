// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/color.h"

#include <pty.h>
#include <unistd.h>

TEST(color_follows_the_setting_the_terminal_and_the_environment)
{
    int terminal, other, file[2];
    test_require_pty();
    CHECK(!openpty(&terminal, &other, NULL, NULL, NULL) && !pipe(file));
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    CHECK(color_is_on(other) && !color_is_on(file[1]));
    setenv("NO_COLOR", "1", 1);
    CHECK(!color_is_on(other));
    setenv("NO_COLOR", "", 1);
    CHECK(color_is_on(other));
    setenv("TERM", "dumb", 1);
    CHECK(!color_is_on(other));
    unsetenv("TERM");
    CHECK(!color_is_on(other));
    color_set(COLOR_ALWAYS);
    CHECK(color_is_on(file[1]));
    color_set(COLOR_NEVER);
    setenv("TERM", "xterm", 1);
    CHECK(!color_is_on(other));
    color_set(COLOR_AUTO);
    close(terminal), close(other), close(file[0]), close(file[1]);
}

TEST(the_first_locale_variable_that_is_set_names_the_characters)
{
    unsetenv("LC_ALL"), unsetenv("LC_CTYPE"), unsetenv("LANG");
    CHECK(!color_is_utf8());
    setenv("LANG", "en_US.UTF-8", 1);
    CHECK(color_is_utf8());
    setenv("LC_CTYPE", "C", 1);
    CHECK(!color_is_utf8());
    setenv("LC_ALL", "C.utf8", 1);
    CHECK(color_is_utf8());
    setenv("LC_ALL", "", 1);
    CHECK(!color_is_utf8());
}
