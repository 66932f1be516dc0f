// SPDX-License-Identifier: Apache-2.0
#include "base/escape.h"

#include "test.h"

#define TILDES "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~"

TEST(control_characters_are_escaped_and_text_is_not)
{
    static const char *const cases[][3] = {
        {"plain text, caf\xc3\xa9 \xf0\x9f\xa6\x99", "",
         "plain text, caf\xc3\xa9 \xf0\x9f\xa6\x99"},
        {"a\nb\tc", "", "a\\nb\\tc"},
        {"a\nb\tc", "\n", "a\nb\\tc"},
        {"\033[2Jx\177", "", "\\x1b[2Jx\\x7f"},
        {"\033[31mred", "\033", "\033[31mred"},
        {"csi \xc2\x9b"
         "1m, nbsp \xc2\xa0",
         "", "csi \\x9b1m, nbsp \xc2\xa0"},
        {"not UTF-8: \xff\x80", "", "not UTF-8: \xff\x80"},
        {"", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[64];
        escape_controls(got, sizeof got, cases[i][0], cases[i][1]);
        CHECK(!strcmp(got, cases[i][2]));
    }
}

/* Plain text is copied eight bytes at a time. */
TEST(control_characters_are_escaped_anywhere_in_a_longer_text)
{
    static const unsigned char bytes[] = {1, 0x1f, 0x20, 0x7e, 0x7f, 0xff};
    for (int len = 1; len < 40; len++)
        for (int at = 0; at < len; at++)
            for (size_t k = 0; k < sizeof bytes; k++) {
                char from[128], got[64], expected[128];
                bool is_control = bytes[k] < 0x20 || bytes[k] == 0x7f;
                snprintf(from, sizeof from, "%.*s%c%.*s", at, TILDES, bytes[k], len - at, TILDES);
                snprintf(expected, sizeof expected, is_control ? "%.*s\\x%02x%.*s" : "%.*s%c%.*s",
                         at, TILDES, bytes[k], len - at, TILDES);
                CHECK(!strcmp(escape_controls(got, sizeof got, from, ""), expected));
                escape_controls(got, (size_t)at + 1, from, "");
                CHECK(strlen(got) == (size_t)at && !strncmp(got, TILDES, (size_t)at));
            }
}

TEST(a_cut_is_between_characters_and_escapes)
{
    char got[6];
    CHECK(!strcmp(escape_controls(got, sizeof got, "abcd\n", ""), "abcd"));
    CHECK(!strcmp(escape_controls(got, sizeof got, "abcd\xc3\xa9", ""), "abcd"));
    CHECK(!strcmp(escape_controls(got, sizeof got, "abc\xc3\xa9", ""), "abc\xc3\xa9"));
    CHECK(!strcmp(escape_controls(got, 1, "abc", ""), ""));
}

TEST(messages_of_failures_keep_only_their_own_newlines)
{
    status_fail(STATUS_DATA, "x.c", 1, "tensor %s:\n  what", "a\nb\033[2J");
    CHECK(!strcmp(status_message(), "tensor a\\nb\\x1b[2J:\n  what"));
    status_prefix(STATUS_DATA, "file %s", "x\ny");
    CHECK(!strcmp(status_message(), "file x\\ny: tensor a\\nb\\x1b[2J:\n  what"));
    status_fail(STATUS_DATA, "x.c", 1, "%s", "lines\nof text\r");
    CHECK(!strcmp(status_message(), "lines\nof text\\x0d"));
    status_fail(STATUS_DATA, "x.c", 1, "tensor %s", "a\036b");
    CHECK(!strcmp(status_message(), "tensor a\\x1eb"));
    status_fail(STATUS_DATA, "x.c", 1, "%s", "a\036b\nc");
    CHECK(!strcmp(status_message(), "a\\x1eb\nc"));
    status_fail(STATUS_DATA, "x.c", 1, "tensor %s:\n  what", "a\036b");
    CHECK(!strchr(status_message(), '\n') && strstr(status_message(), "tensor a\\x1eb:"));
}
