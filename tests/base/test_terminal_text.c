// SPDX-License-Identifier: Apache-2.0
#include "base/pty.h"
#include "test.h"

#include "base/terminal_text.h"

static bool shows(const char *bytes, size_t len, bool last, const char *want, size_t used)
{
    struct text out = {0};
    text_adds(&out, "");
    bool ok = terminal_text_add(&out, bytes, len, last) == used && !strcmp(out.data, want);
    if (!ok) print_error("\"%s\", wanted \"%s\"\n", out.data, want);
    text_release(&out);
    return ok;
}

TEST(controls_are_escaped_and_bytes_that_are_not_utf8_replaced)
{
    CHECK(shows("a\n\tb", 4, true, "a\n\tb", 4));
    CHECK(shows("\033[2J\r\a\x7f", 7, true, "\\x1b[2J\\x0d\\x07\\x7f", 7));
    CHECK(shows("a\0b", 3, true, "a\\x00b", 3));
    CHECK(shows("\xc2\x9b"
                "1m",
                4, true, "\\x9b1m", 4)); /* CSI as one character */
    CHECK(shows("\xc3\xa9\xe6\x97\xa5", 5, true, "\u00e9\u65e5", 5));
    CHECK(shows("\x9b\xff\xe6", 3, true, "\ufffd\ufffd\ufffd", 3));
    CHECK(shows("", 0, true, "", 0));
}

TEST(the_beginning_of_a_character_waits_for_its_rest)
{
    static const char llama[] = "\xf0\x9f\xa6\x99";
    for (size_t n = 1; n < 4; n++) {
        CHECK(shows(llama, n, false, "", 0));
        CHECK(shows(llama + n, 1, false, "\ufffd", 1)); /* no beginning */
    }
    CHECK(shows(llama, 4, false, "\U0001f999", 4));
    CHECK(shows("\xc2", 1, false, "", 0));
    CHECK(shows("\xe6\x97z", 3, false, "\ufffd\ufffdz", 3));
    CHECK(shows("\xf5", 1, false, "\ufffd", 1));
}

static int write_escape(void *unused)
{
    (void)unused;
    static const char text[] = "\033]0;title\a\xe6";
    return terminal_text_write(text, sizeof text - 1, true) == sizeof text - 1 ? 0 : 1;
}

TEST(only_a_terminal_gets_escapes)
{
    struct pty p;
    bool raw;
    pty_start(&p, write_escape, NULL);
    CHECK(pty_finish(&p, &raw) == 0);
    CHECK(!strcmp(p.seen.data, "\\x1b]0;title\\x07\ufffd"));
    text_release(&p.seen);
}
