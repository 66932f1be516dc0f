// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "runs/printable.h"

static bool prints_as(const char *bytes, size_t len, const char *want)
{
    struct text t = {0};
    printable_add(&t, bytes, len);
    bool same = !strcmp(t.data ? t.data : "", want);
    text_release(&t);
    return same;
}

TEST(printable_escapes_what_a_terminal_would_act_on)
{
    CHECK(prints_as("a\0b", 3, "a\\x00b"));
    CHECK(prints_as("\033[2J", 4, "\\x1b[2J"));
    CHECK(prints_as("\302\2332J", 4, "\\x9b2J")); /* CSI in UTF-8 */
    CHECK(prints_as("\377\376", 2, "\\xff\\xfe"));
    CHECK(prints_as("\342\200\256x", 4, "\\u202ex"));
    CHECK(prints_as("\303\251\n", 3, "\303\251\\x0a"));
    CHECK(prints_as("\303", 1, "\\xc3"));
}

TEST(printable_string_is_cut_between_characters)
{
    char *s = printable_string("ab\303\251\303\251", 6, 5);
    CHECK(!strcmp(s, "ab\303\251"));
    free(s);
    s = printable_string("\033\033\033", 3, 6);
    CHECK(!strcmp(s, "\\x1b"));
    free(s);
}

static bool fits_as(const char *string, size_t width, const char *want)
{
    struct text t = {0};
    printable_fit(&t, string, width);
    bool same = !strcmp(t.data ? t.data : "", want);
    text_release(&t);
    return same;
}

TEST(printable_fit_counts_columns_not_bytes)
{
    CHECK(printable_width("\303\251\346\227\245") == 3); /* one narrow, one wide */
    CHECK(printable_width("e\314\201") == 1);            /* with a combining accent */
    CHECK(fits_as("ab", 4, "ab  ") && fits_as("abcd", 4, "abcd") && fits_as("abcde", 4, "abc~"));
    CHECK(fits_as("\346\227\245\346\227\245\346\227\245", 4, "\346\227\245~ "));
    CHECK(fits_as("abc", 0, ""));
}
