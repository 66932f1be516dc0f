// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_lexer.h"

TEST(a_word_extends_past_the_quotes_and_brackets_in_it)
{
    struct shell s;
    static const char text[] = "a\"b;c\"$(d | e \")\")${f:-\"}\"}'g h'\\ i;j";
    struct shell_cursor c = {.at = text, .end = text + sizeof text - 1, .line = 1};
    struct shell_token word;
    shell_init(&s, "x.sh", (struct shell_files){0});
    CHECK_STATUS(OK, shell_lexer_next(&s, &c, &word));
    CHECK(word.at == text && word.len == sizeof text - 3 && *c.at == ';');
    shell_release(&s);
}
