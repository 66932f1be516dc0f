// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_arithmetic.h"

TEST(arithmetic_follows_precedence_and_variables)
{
    static const struct {
        const char *text;
        int64_t value;
        bool known;
    } cases[] = {{"1 + 2 * 3", 7, true},    {"(1 + 2) * -3", -9, true}, {"A % 4 / 2", 1, true},
                 {"NONE + 1", 1, true},     {"EMPTY", 0, true},         {"UNKNOWN * 2", 0, false},
                 {"SLURM_X + 1", 0, false}, {"$(nproc) + 1", 0, false}, {"1 / UNKNOWN", 0, false}};
    struct shell s;
    shell_init(&s, "x.sh", (struct shell_files){0});
    shell_set(&s, "A", "7"), shell_set(&s, "EMPTY", ""), shell_set(&s, "UNKNOWN", "$(nproc...)");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value;
        bool known;
        CHECK_STATUS(OK, shell_arithmetic_evaluate(&s, cases[i].text, 1, &value, &known));
        CHECK(known == cases[i].known && (!known || value == cases[i].value));
    }
    shell_release(&s);
}

TEST(numbers_may_have_blanks_around_them)
{
    int64_t value;
    CHECK(shell_arithmetic_number(" 12 ", &value) && value == 12);
    CHECK(!shell_arithmetic_number("1 2", &value) && !shell_arithmetic_number("", &value));
    CHECK(!shell_arithmetic_number("9223372036854775808", &value));
}
