// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/json.h"
#include "runs/runs_fixture.h"
#include "runs/runs_table.h"

/* Three runs with the same age. */
static double open_runs(struct run_list *l, struct runs_table *t)
{
    const char *folder = test_folder();
    fixture_run(folder, "a", 20, 3.5, 0.25);
    fixture_run(folder, "b", 10, 2.5, 0.5);
    fixture_run(folder, "c,\"1\"", 5, 4, 0.25);
    CHECK_STATUS(OK, run_list_open(l, &folder, 1));
    for (size_t i = 0; i < l->count; i++) {
        char *name = heap_strdup(l->runs[i].name);
        free(l->runs[i].title);
        l->runs[i].title = name;
        l->runs[i].written_s = 1e9;
    }
    runs_table_init(t, l, 1e9 + 7200);
    return 1e9 + 7200;
}

static void check_text(const struct runs_table *t, size_t width, const char *want,
                       const char *want_dropped)
{
    struct text out = {0}, dropped = {0};
    runs_table_text(t, width, &out, &dropped);
    if (strcmp(out.data, want)) print_error("%s", out.data);
    CHECK(!strcmp(out.data, want) && !strcmp(dropped.data ? dropped.data : "", want_dropped));
    text_release(&out), text_release(&dropped);
}

TEST(runs_table_shows_the_settings_that_differ)
{
    struct run_list l;
    struct runs_table t;
    open_runs(&l, &t);
    runs_table_choose_columns(&t, false);
    check_text(&t, 0,
               "run      lr  state      step     loss  best_validation  tokens  age\n"
               "a      0.25  finished  20/20  80.0000           3.5000   20.0K   2h\n"
               "b       0.5  killed    10/20  90.0000           2.5000   10.0K   2h\n"
               "c,\"1\"  0.25  killed     5/20  95.0000           4.0000   5.00K   2h\n",
               "");
    check_text(&t, 64,
               "run    state      step     loss  best_validation  tokens  age\n"
               "a      finished  20/20  80.0000           3.5000   20.0K   2h\n"
               "b      killed    10/20  90.0000           2.5000   10.0K   2h\n"
               "c,\"1\"  killed     5/20  95.0000           4.0000   5.00K   2h\n",
               "optimizer.lr");
    runs_table_release(&t);
    run_list_close(&l);
}

TEST(runs_table_never_exceeds_its_width)
{
    struct run_list l;
    struct runs_table t;
    open_runs(&l, &t);
    runs_table_choose_columns(&t, true);
    for (size_t width = 1; width < 90; width++) {
        struct text out = {0}, dropped = {0};
        runs_table_text(&t, width, &out, &dropped);
        for (const char *at = out.data; *at; at += strcspn(at, "\n") + 1)
            CHECK(strcspn(at, "\n") <= width);
        text_release(&out), text_release(&dropped);
    }
    runs_table_release(&t);
    run_list_close(&l);
}

TEST(runs_table_sorts_and_filters)
{
    struct run_list l;
    struct runs_table t;
    struct run_filter f;
    open_runs(&l, &t);
    CHECK_STATUS(OK, runs_table_sort(&t, "best_validation", false));
    CHECK(t.rows[0] == &l.runs[1] && t.rows[1] == &l.runs[0] && t.rows[2] == &l.runs[2]);
    CHECK_STATUS(OK, runs_table_sort(&t, "step", false));
    CHECK(t.rows[0] == &l.runs[2] && t.rows[2] == &l.runs[0]);
    CHECK_STATUS(OK, runs_table_sort(&t, "state", true));
    CHECK(t.rows[0] == &l.runs[1] && t.rows[1] == &l.runs[2]); /* ties by path */
    l.runs[1].metrics.series[0].count = 0;                     /* no loss: last both ways */
    for (int reverse = 0; reverse < 2; reverse++) {
        CHECK_STATUS(OK, runs_table_sort(&t, "loss", reverse));
        CHECK(t.rows[2] == &l.runs[1] && t.rows[0] == &l.runs[reverse ? 2 : 0]);
    }
    CHECK_STATUS(USAGE, runs_table_sort(&t, "no", false));
    CHECK_STATUS(OK, run_filter_parse(&f, "optimizer.lr = 0.25"));
    runs_table_filter(&t, &f);
    CHECK(t.num_rows == 2);
    runs_table_choose_columns(&t, false);
    for (size_t i = 0; i < t.num_columns; i++) CHECK(strcmp(t.columns[i], "optimizer.lr") != 0);
    run_filter_release(&f);
    runs_table_release(&t);
    run_list_close(&l);
}

TEST(runs_table_prints_csv_and_json)
{
    struct run_list l;
    struct runs_table t;
    struct text csv = {0}, json = {0};
    struct json *parsed = NULL;
    open_runs(&l, &t);
    CHECK_STATUS(USAGE, runs_table_set_columns(&t, " , "));
    CHECK_STATUS(USAGE, runs_table_set_columns(&t, "run,nothing"));
    CHECK_MESSAGE("--columns: unknown column nothing");
    CHECK_STATUS(OK, runs_table_set_columns(&t, "run, state,loss,optimizer.lr"));
    struct run_series *loss = &l.runs[1].metrics.series[0];
    loss->values[loss->count - 1] = NAN;
    runs_table_csv(&t, &csv);
    CHECK(!strcmp(csv.data, "run,state,loss,optimizer.lr\r\na,finished,80,0.25\r\n"
                            "b,killed,nan,0.5\r\n\"c,\"\"1\"\"\",killed,95,0.25\r\n"));
    runs_table_json(&t, &json);
    CHECK_STATUS(OK, json_parse(json.data, json.len, "json", &parsed));
    CHECK(json_count(parsed) == 3);
    CHECK(json_is_null(json_get(json_item(parsed, 1), "loss")));
    CHECK(json_number(json_get(json_item(parsed, 2), "optimizer.lr")) == 0.25);
    CHECK(json_string_is(json_get(json_item(parsed, 2), "run"), "c,\"1\""));
    json_free(parsed);
    text_release(&csv), text_release(&json);
    runs_table_release(&t);
    run_list_close(&l);
}
