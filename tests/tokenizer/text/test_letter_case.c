// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/letter_case.h"

static void check(const char *from, const char *to)
{
    struct text t = {0};
    text_adds(&t, "x");
    letter_case_capitalize(from, strlen(from), &t);
    if (strcmp(t.data + 1, to) || t.len != strlen(to) + 1) fail_msg("%s: %s", from, t.data);
    text_release(&t);
}

TEST(a_text_is_capitalized)
{
    check("", "");
    check("tHE Llama", "The llama");
    check("\xc3\xa9MILE \xc3\x89 \xd0\x96", "\xc3\x89mile \xc3\xa9 \xd0\xb6");
    check("1A\nB", "1a\nb");
    check("\xc8\xbe\xc8\xba", "\xc8\xbe\xe2\xb1\xa5"); /* lower case takes three bytes */
    check("not \xff UTF-8", "not \xff UTF-8");
}
