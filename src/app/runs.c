/* runs.c -- lists training runs: settings that differ, losses, progress and state. */
// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/terminal.h"
#include "runs/run_list.h"
#include "runs/runs_table.h"

#include <stdio.h>
#include <unistd.h>

static const struct usage usage = {
    "runs",
    {{NULL, {USAGE_ANY(FOLDER, "FOLDER"), USAGE_FLAGS("[flags]")}}},
    "Lists the runs in and below the folders (default: this one), the latest first: the settings\n"
    "that differ between them, state, steps, last loss, best validation loss, tokens, and the "
    "time\n"
    "since they last wrote.  A column is one of these, a key of config.toml (optimizer.lr) or the\n"
    "last value of a key of metrics.jsonl (grad_norm).\n\n"
    "--filter takes comparisons with =, !=, <, <=, >, >= and ~ (contains), joined by \"and\" and\n"
    "\"or\": --filter 'state = finished and loss < 3'.",
};

struct runs_flags {
    const char *sort, *filter, *columns;
    int64_t width;
    bool reverse, json, csv;
};

static enum status check_flags(const struct runs_flags *f)
{
    if (f->json && f->csv) FAIL(USAGE, "--json and --csv: set only one");
    if (f->reverse && !*f->sort) FAIL(USAGE, "--reverse requires --sort COLUMN");
    if (f->width && (f->json || f->csv)) FAIL(USAGE, "--width has no effect with --json or --csv");
    return STATUS_OK;
}

static size_t terminal_width(const struct runs_flags *f)
{
    if (f->width) return (size_t)f->width;
    if (!terminal_is(STDOUT_FILENO)) return 0;
    int columns = terminal_size(STDOUT_FILENO).columns;
    return columns >= 20 ? (size_t)columns : 80;
}

static void print_table(const struct runs_table *t, const struct runs_flags *f)
{
    struct text out = {0}, dropped = {0};
    if (f->json)
        runs_table_json(t, &out);
    else if (f->csv)
        runs_table_csv(t, &out);
    else
        runs_table_text(t, terminal_width(f), &out, &dropped);
    fwrite(out.data, 1, out.len, stdout);
    fflush(stdout);
    if (dropped.len)
        log_line(LOG_INFO, "not shown, as they do not fit: %s (--columns, --csv)", dropped.data);
    if (!t->num_rows) log_line(LOG_INFO, "none of %zu runs fits --filter", t->list->count);
    text_release(&out), text_release(&dropped);
}

static enum status list_runs(const struct arguments *a, const struct runs_flags *f)
{
    const char *here = ".";
    struct run_list l = {0};
    struct runs_table t = {0};
    struct run_filter filter = {0};
    enum status st = STATUS_OK;
    if (*f->filter) TRY_OUT(run_filter_parse(&filter, f->filter));
    TRY_OUT(a->num_words ? run_list_open(&l, a->words, (size_t)a->num_words)
                         : run_list_open(&l, &here, 1));
    TRY_OUT(run_filter_check(&filter, &l));
    runs_table_init(&t, &l, clock_wall_s());
    runs_table_filter(&t, &filter);
    if (*f->sort) TRY_OUT(runs_table_sort(&t, f->sort, f->reverse));
    if (*f->columns)
        TRY_OUT(runs_table_set_columns(&t, f->columns));
    else
        runs_table_choose_columns(&t, f->json || f->csv);
    print_table(&t, f);
out:
    runs_table_release(&t);
    run_list_close(&l);
    run_filter_release(&filter);
    return st;
}

enum status command_runs(int argc, char **argv)
{
    struct runs_flags f = {.sort = "", .filter = "", .columns = ""};
    const struct flag flags[] = {
        {"sort", FLAG_TEXT, &f.sort, "sort by this column, ascending"},
        {"reverse", FLAG_SWITCH, &f.reverse, "sort descending"},
        {"filter", FLAG_TEXT, &f.filter, "list only runs for which this holds"},
        {"columns", FLAG_TEXT, &f.columns, "columns to list, with commas between them"},
        {"json", FLAG_SWITCH, &f.json, "print an array of objects"},
        {"csv", FLAG_SWITCH, &f.csv, "print comma-separated values, with a line of headings"},
        {"width", FLAG_INT(20, 10000), &f.width,
         "most characters of a line (default: the terminal's)"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(check_flags(&f));
    if (a.num_settings)
        FAIL(USAGE, "%s: a run's settings cannot be changed here; to select runs: --filter '%s'",
             a.settings[0], a.settings[0]);
    TRY(list_runs(&a, &f));
    return STATUS_OK;
}
