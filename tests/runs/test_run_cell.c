// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "runs/run_cell.h"
#include "runs/runs_fixture.h"

TEST(run_cell_has_facts_settings_and_metrics)
{
    struct run_list l;
    const char *folder = test_folder();
    fixture_run(folder, "a", 10, 3.5, 0.25);
    CHECK_STATUS(OK, run_list_open(&l, &folder, 1));
    const struct run_folder *r = &l.runs[0];
    CHECK(!strcmp(run_cell_of(r, "state", 0).text, "killed"));
    CHECK(!strcmp(run_cell_of(r, "model.name", 0).text, "llama3"));
    static const struct {
        const char *column;
        double want;
    } numbers[] = {{"step", 10},           {"steps", 20},          {"loss", 90},
                   {"tokens", 10000},      {"optimizer.lr", 0.25}, {"best_validation", 3.5},
                   {"tokens_seen", 10000}, {"training.steps", 20}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct run_cell c = run_cell_of(r, numbers[i].column, 0);
        CHECK(c.kind == RUN_CELL_number && c.number == numbers[i].want);
    }
    CHECK(run_cell_of(r, "age", r->written_s + 30).number == 30);
    CHECK(!run_cell_of(r, "eta", 0).kind && !run_cell_of(r, "ranks", 0).kind);
    CHECK(!run_cell_of(r, "checkpoint", 0).kind && !run_cell_of(r, "error", 0).kind);
    CHECK_STATUS(OK, run_cell_check_column(&l, "validation_loss"));
    CHECK_STATUS(USAGE, run_cell_check_column(&l, "lr"));
    CHECK_MESSAGE("unknown column lr; did you mean optimizer.lr?");
    CHECK_STATUS(USAGE, run_cell_check_column(&l, "stat"));
    CHECK_MESSAGE("did you mean state?");
    run_list_close(&l);
}

TEST(run_cell_numbers_are_finite_and_decimal)
{
    double number;
    CHECK(run_cell_parse_number("-1.5e3", &number) && number == -1500);
    static const char *const others[] = {"", "nan", "inf", "0x10", "1e999", "1 2", "1_0", "--1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!run_cell_parse_number(others[i], &number));
}
