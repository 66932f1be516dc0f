// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_state.h"

TEST(words_split_only_where_they_are_not_quoted)
{
    static const struct {
        const char *raw;
        size_t count;
        const char *first, *last;
    } cases[] = {{"$A", 2, "x", "y"},           {"\"$A\"", 1, "x y", "x y"},
                 {"-$A-", 2, "-x", "y-"},       {"$NONE", 0, NULL, NULL},
                 {"\"$NONE\"", 1, "", ""},      {"''", 1, "", ""},
                 {"a'b c'$A", 2, "ab cx", "y"}, {"${NONE:-$A}", 2, "x", "y"}};
    struct shell s;
    shell_init(&s, "x.sh", (struct shell_files){0});
    shell_set(&s, "A", "x  y");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shell_words w = {0};
        CHECK_STATUS(OK, shell_expand(&s, cases[i].raw, strlen(cases[i].raw), 1, &w));
        CHECK(w.count == cases[i].count);
        if (w.count) CHECK(!strcmp(w.items[0], i == 1 ? "x  y" : cases[i].first));
        if (w.count > 1) CHECK(!strcmp(w.items[w.count - 1], cases[i].last));
        shell_words_release(&w);
    }
    shell_release(&s);
}

TEST(a_word_extends_past_the_quotes_and_brackets_in_it)
{
    struct shell s;
    static const char text[] = "a\"b;c\"$(d | e \")\")${f:-\"}\"}'g h'\\ i;j";
    struct shell_cursor c = {.at = text, .end = text + sizeof text - 1, .line = 1};
    const char *raw;
    size_t len;
    shell_init(&s, "x.sh", (struct shell_files){0});
    CHECK_STATUS(OK, shell_scan(&s, &c, &raw, &len));
    CHECK(raw == text && len == sizeof text - 3 && *c.at == ';');
    shell_release(&s);
}

TEST(unexpanded_commands_and_variables_are_unknown)
{
    CHECK(shell_is_unknown("a$(b...)") && shell_is_unknown("${HOME}/x"));
    CHECK(!shell_is_unknown("$5") && !shell_is_unknown("a(b)"));
    CHECK(shell_is_name("A_1", 3) && !shell_is_name("1A", 2) && !shell_is_name("", 0));
}
