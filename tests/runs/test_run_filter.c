// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "runs/run_filter.h"
#include "runs/runs_fixture.h"

TEST(run_filter_compares_columns)
{
    static const struct {
        const char *filter;
        bool want;
    } rows[] = {
        {"step==10", true},
        {"step = 10.0", true},
        {"step!=10", false},
        {"loss < 91", true},
        {"loss<90", false},
        {"loss <= 90 and loss >= 90", true},
        {"loss > 90", false},
        {"optimizer.lr=0.25", true},
        {"optimizer.lr=2.5e-1", true},
        {"model.name == llama3", true},
        {"model.name ~ ama", true},
        {"model.name ~ 'ama4'", false},
        {"state = \"killed\"", true},
        {"state != killed", false},
        {"grad_norm > 0", false},
        {"grad_norm != 0", true},
        {"age < 2h, age >= 30s", true},
        {"age < 1m", false},
        {"step = 5 or loss = 90", true},
        {"step = 10 && loss = 1 || step = 5", false},
        {"step = 5 || step = 10 && loss = 90", true},
        {"step = 10 || step = 5 && loss = 90", true},
        {"mfu = nan", true},
        {"mfu < 1", false},
        {"order = 3", true},
    };
    struct run_list l;
    const char *folder = test_folder();
    fixture_run(folder, "a", 5, 3.5, 0.25);
    fixture_write(folder, "a/metrics.jsonl",
                  "{\"step\":10,\"loss\":90,\"mfu\":null,\"order\":3}\n");
    CHECK_STATUS(OK, run_list_open(&l, &folder, 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run_filter f;
        CHECK_STATUS(OK, run_filter_parse(&f, rows[i].filter));
        bool got = run_filter_accepts(&f, &l.runs[0], l.runs[0].written_s + 90);
        if (got != rows[i].want) print_error("%s\n", rows[i].filter);
        CHECK(got == rows[i].want);
        run_filter_release(&f);
    }
    run_list_close(&l);
}

TEST(run_filter_errors_name_the_position)
{
    static const struct {
        const char *filter, *want;
    } rows[] = {
        {"", "character 1: expected the name of a column, but the filter ends"},
        {"step", "character 5: expected =, !=, <, <=, >, >= or ~ after the column's name, but"},
        {"step ==", "character 8: expected a value, but the filter ends"},
        {"step == 1 loss < 2", "character 11: expected \"and\" or \"or\" between comparisons"},
        {"loss < low", "character 8: expected a number"},
        {"a = 'x", "character 5: expected a closing quote"},
        {"a = 1 and", "character 10: expected the name of a column"},
        {"= 3", "character 1: expected the name of a column"},
        {"a => 3", "character 4: expected a value"},
        {"a = 1 android = 2", "character 7: expected \"and\" or \"or\""},
        {"\303\251 = \"", "character 5: expected a closing quote"},
        {"\346\227\245 = \"", "character 5: expected a closing quote"}, /* two columns wide */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run_filter f;
        CHECK_STATUS(USAGE, run_filter_parse(&f, rows[i].filter));
        CHECK_MESSAGE(rows[i].want);
    }
}

TEST(run_filter_rejects_columns_that_no_run_has)
{
    struct run_list l;
    struct run_filter f;
    const char *folder = test_folder();
    fixture_run(folder, "a", 5, 3.5, 0.25);
    CHECK_STATUS(OK, run_list_open(&l, &folder, 1));
    CHECK_STATUS(OK, run_filter_parse(&f, "step = 1 and optimiser.lr < 1"));
    CHECK_STATUS(USAGE, run_filter_check(&f, &l));
    CHECK_MESSAGE(
        "--filter: character 14: unknown column optimiser.lr; did you mean optimizer.lr?");
    run_filter_release(&f);
    CHECK_STATUS(OK, run_filter_parse(&f, "step != '\303\251' or optimiser.lr < 1"));
    CHECK_STATUS(USAGE, run_filter_check(&f, &l));
    CHECK_MESSAGE("--filter: character 16: ");
    run_filter_release(&f);
    run_list_close(&l);
}
