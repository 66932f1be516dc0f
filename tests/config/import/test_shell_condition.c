// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_condition.h"

static enum shell_result evaluate(const char *words)
{
    struct shell s;
    struct shell_words w = {0};
    enum shell_result result;
    char *copy = heap_strdup(words), *next;
    for (char *at = strtok_r(copy, " ", &next); at; at = strtok_r(NULL, " ", &next))
        shell_words_add(&w, at, strlen(at));
    shell_init(&s, "x.sh", (struct shell_files){0});
    CHECK_STATUS(OK, shell_condition_evaluate(&s, w, 1, &result));
    shell_words_release(&w);
    shell_release(&s);
    free(copy);
    return result;
}

TEST(conditions_are_true_false_or_unknown)
{
    static const char *const yes[] = {
        "a",      "1 -eq 01", "2 -gt 1", "a = a",   "abc == a*c",
        "a != b", "! -z a",   "-n a",    "-f file", "1 -eq 2 -o 3 -le 3",
        "a < b",  "! ! a = a"};
    static const char *const no[] = {
        "", "-n", "1 -eq 2", "x -eq 0", "a == b?", "1 -eq 1 -a 2 -lt 1", "! a = a", "-v NONE"};
    static const char *const maybe[] = {"$(x...) -eq 1", "a =~ b", "a = ${HOME}", "-q a",
                                        "a b c d"};
    for (size_t i = 1; i < sizeof yes / sizeof *yes; i++) CHECK(evaluate(yes[i]) == SHELL_TRUE);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CHECK(evaluate(no[i]) ==
              (i == 1 ? SHELL_TRUE : SHELL_FALSE)); /* one nonempty word is true */
    for (size_t i = 0; i < sizeof maybe / sizeof *maybe; i++)
        CHECK(evaluate(maybe[i]) == SHELL_UNKNOWN);
}

TEST(pattern_matching_takes_polynomial_time)
{
    CHECK(shell_condition_match("*", "") && shell_condition_match("a*b*c", "aXbYbZc") &&
          !shell_condition_match("a?", "a"));
    CHECK(!shell_condition_match("a*b", "acd") && shell_condition_match("", ""));
    char word[4001], pattern[401];
    memset(word, 'a', 4000), word[4000] = 0;
    for (int i = 0; i < 400; i += 2) pattern[i] = 'a', pattern[i + 1] = '*';
    strcpy(pattern + 398, "b");
    CHECK(!shell_condition_match(pattern, word));
}
