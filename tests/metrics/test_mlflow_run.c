// SPDX-License-Identifier: Apache-2.0
#include "base/full_disk.h"
#include "test.h"

#include "base/file.h"
#include "base/log.h"
#include "metrics/mlflow_run.h"

#include <unistd.h>

static const struct metrics_config config = {.mlflow_experiment = "apples"};

static struct mlflow_run *start(const char *folder, int64_t last_step, bool validates)
{
    struct mlflow_run *r;
    const struct metrics_options o = {
        .config = &config,
        .dump_folder = folder,
        .validation_due = validates,
        .config_toml = "[optimizer]\nlr = 0.1\n[job]\ndescription = \"a: \\\"b\\\"\"\n"
                       "empty = \"\"\nlines = \"a\\nb\"\n[[data.source]]\npath = \"x\"\n"};
    log_set_quiet(true);
    CHECK_STATUS(OK, mlflow_run_open(&r, &o, last_step));
    return r;
}

static void stop(struct mlflow_run *r)
{
    mlflow_run_close(r);
    log_set_quiet(false);
}

static void log_loss(struct mlflow_run *r, int64_t step, double loss)
{
    const struct event_scalar s[] = {{"loss_metrics/global_avg_loss", loss}, {"mfu(%)", 30}};
    mlflow_run_log(r, step, s, 2);
}

/* The only experiment, or its only run; on the heap. */
static char *only_folder(const char *parent)
{
    struct file_list names;
    char *found = NULL;
    CHECK_STATUS(OK, file_list_dir(&names, parent));
    for (size_t i = 0; i < names.count; i++)
        if (strcmp(names.paths[i], "meta.yaml") != 0) {
            CHECK(!found);
            found = file_join(parent, names.paths[i]);
        }
    CHECK(found);
    file_list_release(&names);
    return found;
}

static char *run_folder(const char *folder)
{
    char *experiment = only_folder(test_path(folder, "mlruns")), *run = only_folder(experiment);
    free(experiment);
    return run;
}

static char *read_in(const char *folder, const char *name)
{
    char *run = run_folder(folder), *path = file_join(run, name);
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    free(run);
    free(path);
    return t.data;
}

static void check_file(const char *folder, const char *name, const char *want)
{
    char *got = read_in(folder, name);
    CHECK(!strcmp(got, want));
    free(got);
}

/* "value step" of each line, without the times. */
static void check_metric(const char *folder, const char *name, const char *want)
{
    struct text t = {0};
    char *all = read_in(folder, name), *rest = all;
    for (char *line; (line = strsep(&rest, "\n")) && *line;)
        text_addf(&t, "%s;", strchr(line, ' '));
    CHECK(!strcmp(t.data ? t.data : "", want));
    text_release(&t);
    free(all);
}

TEST(mlflow_run_names_are_those_that_mlflow_allows)
{
    static const char *const names[][2] = {{"throughput(tps)", "throughput_tps"},
                                           {"memory/max_active(%)", "memory/max_active_percent"},
                                           {"tasks/a b/acc,none", "tasks/a b/acc_none"},
                                           {"/../x//./y", "_./x/_/y"},
                                           {"", "_"},
                                           {"a/", "a/_"},
                                           {"\xc3\xa9\n", "___"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct text t = {0};
        mlflow_run_format_name(&t, names[i][0]);
        if (strcmp(t.data, names[i][1]) != 0) print_error("%s\n", t.data);
        CHECK(!strcmp(t.data, names[i][1]));
        text_release(&t);
    }
}

TEST(mlflow_run_writes_metrics_parameters_and_tags)
{
    const char *folder = test_folder();
    struct mlflow_run *r = start(folder, 0, false);
    log_loss(r, 1, 2.5);
    log_loss(r, 10, NAN);
    char *meta = read_in(folder, "meta.yaml");
    CHECK(strstr(meta, "\nstatus: 1\n") && strstr(meta, "\nend_time: null\n"));
    free(meta);
    mlflow_run_end(r, MLFLOW_FINISHED);
    stop(r);
    check_metric(folder, "metrics/loss_metrics/global_avg_loss", " 2.5 1; nan 10;");
    check_metric(folder, "metrics/mfu_percent", " 30 1; 30 10;");
    check_file(folder, "params/optimizer.lr", "0.1");
    check_file(folder, "params/job.description", "a: \"b\"");
    check_file(folder, "params/job.empty", "\"\"");
    check_file(folder, "params/job.lines", "\"a\\nb\"");
    check_file(folder, "params/data.source.0.path", "x");
    check_file(folder, "tags/mlflow.source.name", "llamero");
    meta = read_in(folder, "meta.yaml");
    CHECK(strstr(meta, "\nstatus: 3\n") && !strstr(meta, "end_time: null"));
    free(meta);
}

TEST(mlflow_experiments_of_one_name_have_one_id)
{
    const char *a = test_folder(), *b = test_folder();
    struct text meta = {0};
    stop(start(a, 0, false));
    stop(start(b, 0, false));
    char *one = only_folder(test_path(a, "mlruns")), *two = only_folder(test_path(b, "mlruns"));
    CHECK(!strcmp(strrchr(one, '/'), strrchr(two, '/')) && strlen(strrchr(one, '/')) == 1 + 18);
    CHECK_STATUS(OK, file_read(test_path(one, "meta.yaml"), 1 << 20, &meta));
    CHECK(strstr(meta.data, "\nname: \"apples\"\n"));
    text_release(&meta);
    free(one);
    free(two);
}

TEST(mlflow_run_resumes_with_one_lineage)
{
    const char *folder = test_folder();
    const struct event_scalar validation = {"validation_metrics/loss", 9};
    struct mlflow_run *r = start(folder, 0, false);
    for (int64_t step = 1; step <= 5; step++) log_loss(r, step, (double)step);
    mlflow_run_log(r, 2, &validation, 1);
    mlflow_run_log(r, 3, &validation, 1);
    mlflow_run_end(r, MLFLOW_KILLED);
    stop(r);
    char *before = run_folder(folder), *name = file_join(before, "metrics/mfu_percent");
    struct text t = {0};
    CHECK_STATUS(OK, file_read(name, 1 << 20, &t));
    text_adds(&t, "123 4"); /* a line that was cut */
    CHECK_STATUS(OK, file_write(name, t.data, t.len));
    r = start(folder, 3, true);
    log_loss(r, 4, 40);
    stop(r);
    char *after = run_folder(folder);
    CHECK(!strcmp(before, after));
    check_metric(folder, "metrics/loss_metrics/global_avg_loss", " 1 1; 2 2; 3 3; 40 4;");
    check_metric(folder, "metrics/mfu_percent", " 30 1; 30 2; 30 3; 30 4;");
    check_metric(folder, "metrics/validation_metrics/loss", " 9 2;");
    char *meta = read_in(folder, "meta.yaml");
    CHECK(strstr(meta, "\nstatus: 1\n"));
    free(meta);
    text_release(&t);
    free(before);
    free(after);
    free(name);
}

TEST(mlflow_run_reports_metrics_that_it_does_not_write)
{
    enum { MOST = 512 };
    const char *folder = test_folder(), *log = test_path(folder, "log.txt");
    struct mlflow_run *r = start(folder, 0, false);
    struct text t = {0};
    CHECK_STATUS(OK, log_open(log));
    for (int step = 1; step <= 2; step++)
        for (int i = 0; i < MOST + 2; i++) {
            char tag[16];
            snprintf(tag, sizeof tag, "m%d", i);
            mlflow_run_log(r, step, &(struct event_scalar){tag, i}, 1);
        }
    stop(r);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(log, 1 << 20, &t));
    const char *line = strstr(t.data, "more than 512 metrics: \"m512\" and later ones are not");
    CHECK(line && !strstr(line, "m513"));
    check_metric(folder, "metrics/m511", " 511 1; 511 2;");
    text_release(&t);
}

TEST(mlflow_run_on_a_full_disk_is_written_late)
{
    const char *folder = test_folder();
    struct mlflow_run *r = start(folder, 0, false);
    log_loss(r, 1, 1);
    full_disk_begin(5);
    log_loss(r, 2, 2);
    full_disk_end();
    log_loss(r, 3, 3);
    stop(r);
    check_metric(folder, "metrics/loss_metrics/global_avg_loss", " 1 1; 2 2; 3 3;");
}

TEST(mlflow_run_names_the_folder_it_cannot_make)
{
    struct mlflow_run *r;
    const char *file = test_path(test_folder(), "taken");
    CHECK_STATUS(OK, file_write(file, "x", 1));
    const struct metrics_options o = {.config = &config, .dump_folder = file};
    CHECK_STATUS(IO, mlflow_run_open(&r, &o, 0));
    CHECK_MESSAGE("taken");
}
