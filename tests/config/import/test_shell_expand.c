// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_expand.h"

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
        const struct shell_token word = {cases[i].raw, strlen(cases[i].raw)};
        CHECK_STATUS(OK, shell_expand(&s, word, 1, &w));
        CHECK(w.count == cases[i].count);
        if (w.count) CHECK(!strcmp(w.items[0], i == 1 ? "x  y" : cases[i].first));
        if (w.count > 1) CHECK(!strcmp(w.items[w.count - 1], cases[i].last));
        shell_words_release(&w);
    }
    shell_release(&s);
}
