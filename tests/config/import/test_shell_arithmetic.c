// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_arithmetic.h"

TEST(arithmetic_follows_precedence_and_variables)
{
    static const struct {
        const char *text;
        int64_t value;
        const char *unknown;
    } cases[] = {
        {"1 + 2 * 3", 7, ""},
        {"(1 + 2) * -3", -9, ""},
        {"A % 4 / 2", 1, ""},
        {"NONE + 1", 1, ""},
        {"EMPTY", 0, ""},
        {"UNKNOWN * 2 + UNKNOWN", 0, "UNKNOWN"},
        {"SLURM_X + UNKNOWN", 0, "SLURM_X,UNKNOWN"},
        {"$(nproc...) + ${SLURM_X}", 0, "nproc,SLURM_X"},
        {"1 / UNKNOWN", 0, "UNKNOWN"},
        {"SLURM_NNODES * SLURM_NN", 0, "SLURM_NNODES,SLURM_NN"},
        {"$(A,nproc...) * nproc * $(nproc,A...) * ${SLURM_X}", 0, "A,nproc,SLURM_X"},
        {"$([...) + SLURM_X", 0, "?,SLURM_X"},
    };
    struct shell s;
    shell_init(&s, "x.sh", (struct shell_files){0});
    shell_set(&s, "A", "7"), shell_set(&s, "EMPTY", ""), shell_set(&s, "UNKNOWN", "$(nproc...)");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value;
        struct text unknown = {0};
        CHECK_STATUS(OK, shell_arithmetic_evaluate(&s, cases[i].text, 1, &value, &unknown));
        const char *names = unknown.len ? unknown.data : "";
        CHECK(!strcmp(names, cases[i].unknown) && (unknown.len || value == cases[i].value));
        text_release(&unknown);
    }
    shell_release(&s);
}

TEST(arithmetic_with_a_long_unknown_name_is_unknown)
{
    struct shell s;
    char sum[1024], name[300];
    int64_t value;
    struct text unknown = {0};
    memset(name, 'A', sizeof name), name[sizeof name - 1] = 0;
    snprintf(sum, sizeof sum, "%s + %s + SLURM_X", name, name);
    shell_init(&s, "x.sh", (struct shell_files){0});
    shell_set(&s, name, "$(nproc...)");
    CHECK_STATUS(OK, shell_arithmetic_evaluate(&s, sum, 1, &value, &unknown));
    CHECK(!strcmp(unknown.data, name));
    text_release(&unknown);
    shell_release(&s);
}

TEST(numbers_may_have_blanks_around_them)
{
    int64_t value;
    CHECK(shell_arithmetic_number(" 12 ", &value) && value == 12);
    CHECK(!shell_arithmetic_number("1 2", &value) && !shell_arithmetic_number("", &value));
    CHECK(!shell_arithmetic_number("9223372036854775808", &value));
}
