// SPDX-License-Identifier: Apache-2.0
#include "base/full_disk.h"
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/protobuf.h"
#include "formats/wandb_log.h"
#include "metrics/wandb_run.h"

enum { RECORD_HISTORY = 2, RECORD_SUMMARY = 3, RECORD_RUN = 17, RECORD_EXIT = 18 };
static const struct metrics_config config = {.wandb_project = "apples"};

static struct wandb_run *start(const char *folder, int64_t last_step)
{
    struct wandb_run *w;
    const struct metrics_options o = {
        .config = &config, .dump_folder = folder, .config_toml = "[optimizer]\nlr = 0.1\n"};
    log_set_quiet(true);
    CHECK_STATUS(OK, wandb_run_open(&w, &o, last_step));
    return w;
}

static void stop(struct wandb_run *w)
{
    wandb_run_close(w);
    log_set_quiet(false);
}

static void log_loss(struct wandb_run *w, int64_t step, double loss)
{
    const struct event_scalar s[] = {{"loss", loss}, {"memory/max(GiB)", 1}};
    wandb_run_log(w, step, s, 2);
}

/* The only run's folder, and its .wandb file. */
static void find(const char *folder, char *run, char *path, size_t size)
{
    struct file_list names;
    const char *parent = test_path(folder, "wandb");
    CHECK_STATUS(OK, file_list_dir(&names, parent));
    CHECK(names.count == 1 && !strncmp(names.paths[0], "offline-run-", 12));
    const char *id = strrchr(names.paths[0], '-') + 1;
    snprintf(run, size, "%s/%s", parent, names.paths[0]);
    snprintf(path, size, "%s/%s/run-%s.wandb", parent, names.paths[0], id);
    file_list_release(&names);
}

static void add_message(struct text *out, struct protobuf_reader m)
{
    struct protobuf_field f;
    struct protobuf_reader key, value;
    while (protobuf_next(&m, &f)) {
        struct protobuf_reader item = {f.bytes, f.bytes + f.len};
        if (!f.bytes || !protobuf_find(item, 1, &key) || !protobuf_find(item, 16, &value)) continue;
        if (*key.at == '_' && strncmp(key.at, "_step", 5) != 0) continue;
        text_addf(out, " %.*s=%.*s", (int)(key.end - key.at), key.at, (int)(value.end - value.at),
                  value.at);
    }
}

/* One line per record of that kind. */
static char *records(const char *folder, int kind)
{
    char run[1024], path[1024];
    struct text all = {0}, out = {0};
    struct wandb_log_reader r;
    struct protobuf_reader m;
    find(folder, run, path, sizeof path);
    CHECK_STATUS(OK, file_read(path, 1 << 24, &all));
    CHECK(wandb_log_open(&r, all.data, all.len));
    while (wandb_log_next(&r)) {
        struct protobuf_reader record = {r.record.data, r.record.data + r.record.len};
        if (!protobuf_find(record, kind, &m)) continue;
        add_message(&out, m);
        text_adds(&out, ";");
    }
    CHECK(r.at == all.len);
    wandb_log_close(&r);
    text_release(&all);
    return out.data ? out.data : calloc(1, 1);
}

static void check_records(const char *folder, int kind, const char *want)
{
    char *got = records(folder, kind);
    if (strcmp(got, want) != 0) print_error("%s\n", got);
    CHECK(!strcmp(got, want));
    free(got);
}

TEST(wandb_run_has_a_row_per_step_and_its_summary)
{
    const char *folder = test_folder();
    struct wandb_run *w = start(folder, 0);
    log_loss(w, 1, 2.5);
    log_loss(w, 10, NAN);
    wandb_run_end(w, 0);
    stop(w);
    static const char rows[] = " loss=2.5 memory/max(GiB)=1 _step=1;"
                               " loss=NaN memory/max(GiB)=1 _step=10;";
    check_records(folder, RECORD_HISTORY, rows);
    check_records(folder, RECORD_SUMMARY, rows);
    check_records(folder, RECORD_EXIT, ";");
}

TEST(wandb_run_names_its_project_and_configuration)
{
    const char *folder = test_folder();
    char run[1024], path[1024];
    struct text t = {0};
    struct wandb_log_reader r;
    struct protobuf_reader m, field;
    stop(start(folder, 0));
    find(folder, run, path, sizeof path);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    CHECK(wandb_log_open(&r, t.data, t.len) && wandb_log_next(&r) && wandb_log_next(&r));
    struct protobuf_reader record = {r.record.data, r.record.data + r.record.len};
    CHECK(protobuf_find(record, RECORD_RUN, &m));
    CHECK(protobuf_find(m, 3, &field) && !memcmp(field.at, "apples", 6));
    CHECK(protobuf_find(m, 8, &field) && field.end > field.at); /* the folder's name */
    struct text items = {0};
    CHECK(protobuf_find(m, 4, &field));
    add_message(&items, field);
    CHECK(!strcmp(items.data, " optimizer={\"lr\":0.1}"));
    wandb_log_close(&r);
    CHECK_STATUS(OK, file_read(test_path(run, "files/config.yaml"), 1 << 20, &t));
    CHECK(!strcmp(t.data, "wandb_version: 1\n\"optimizer\":\n    value: {\"lr\":0.1}\n"));
    struct json *v;
    CHECK_STATUS(OK, json_read(test_path(run, "files/wandb-metadata.json"), 1 << 20, &v));
    CHECK(json_string_is(json_get(v, "program"), "llamero"));
    json_free(v);
    text_release(&items);
    text_release(&t);
}

TEST(wandb_run_merges_what_belongs_to_one_step)
{
    const char *folder = test_folder();
    const struct event_scalar validation = {"validation", 3};
    struct wandb_run *w = start(folder, 0);
    log_loss(w, 1, 5);
    log_loss(w, 2, 4);
    wandb_run_log(w, 2, &validation, 1);
    stop(w);
    static const char rows[] = " loss=5 memory/max(GiB)=1 _step=1;"
                               " loss=4 memory/max(GiB)=1 _step=2 validation=3;";
    check_records(folder, RECORD_HISTORY, rows);
    w = start(folder, 2); /* validates step 2 again */
    wandb_run_log(w, 2, &(struct event_scalar){"validation", 7}, 1);
    stop(w);
    check_records(folder, RECORD_HISTORY,
                  " loss=5 memory/max(GiB)=1 _step=1;"
                  " loss=4 memory/max(GiB)=1 _step=2 validation=7;");
}

TEST(wandb_run_writes_any_number_of_metrics)
{
    enum { COUNT = 600 };
    const char *folder = test_folder();
    struct wandb_run *w = start(folder, 0);
    for (int i = 0; i < COUNT; i++) {
        char tag[16];
        snprintf(tag, sizeof tag, "m%d", i);
        wandb_run_log(w, 1, &(struct event_scalar){tag, i}, 1);
    }
    stop(w);
    char *rows = records(folder, RECORD_HISTORY);
    CHECK(strstr(rows, " m0=0 ") && strstr(rows, " m599=599;"));
    free(rows);
}

TEST(wandb_run_resumes_with_one_lineage)
{
    const char *folder = test_folder();
    char run[1024], path[1024], synced[1100], again[1024];
    struct wandb_run *w = start(folder, 0);
    for (int64_t step = 1; step <= 5; step++) log_loss(w, step, (double)step);
    wandb_run_end(w, 75);
    stop(w);
    find(folder, run, path, sizeof path);
    snprintf(synced, sizeof synced, "%s.synced", path);
    CHECK_STATUS(OK, file_write(synced, "", 0));
    w = start(folder, 3);
    CHECK(!file_exists(synced));
    log_loss(w, 4, 40);
    stop(w);
    find(folder, run, again, sizeof again);
    CHECK(!strcmp(path, again));
    check_records(folder, RECORD_HISTORY,
                  " loss=1 memory/max(GiB)=1 _step=1; loss=2 memory/max(GiB)=1 _step=2;"
                  " loss=3 memory/max(GiB)=1 _step=3; loss=40 memory/max(GiB)=1 _step=4;");
    check_records(folder, RECORD_EXIT, "");
    stop(start(folder, 0));
    check_records(folder, RECORD_HISTORY, "");
}

TEST(wandb_run_keeps_whole_records_of_a_file_that_was_cut)
{
    const char *folder = test_folder();
    char run[1024], path[1024];
    struct text t = {0};
    struct wandb_run *w = start(folder, 0);
    for (int64_t step = 1; step <= 3; step++) log_loss(w, step, (double)step);
    stop(w);
    find(folder, run, path, sizeof path);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    CHECK_STATUS(OK, file_write(path, t.data, t.len - 300)); /* within the row of step 3 */
    stop(start(folder, 100));
    check_records(folder, RECORD_HISTORY,
                  " loss=1 memory/max(GiB)=1 _step=1; loss=2 memory/max(GiB)=1 _step=2;");
    CHECK_STATUS(OK, file_write(path, "not a log at all", 16));
    stop(start(folder, 100));
    check_records(folder, RECORD_HISTORY, "");
    text_release(&t);
}

TEST(wandb_run_on_a_full_disk_is_written_late)
{
    const char *folder = test_folder(), *roomy = test_folder();
    for (int i = 0; i < 2; i++) {
        struct wandb_run *w = start(i ? folder : roomy, 0);
        for (int64_t step = 1; step <= 300; step++) { /* several blocks */
            if (i && step == 100) full_disk_begin(30000);
            if (i && step == 250) full_disk_end();
            log_loss(w, step, (double)step);
        }
        stop(w);
    }
    char *want = records(roomy, RECORD_HISTORY);
    check_records(folder, RECORD_HISTORY, want);
    free(want);
}

TEST(wandb_run_rejects_a_run_id_that_is_a_path)
{
    struct wandb_run *w;
    const struct metrics_options o = {.config = &config, .dump_folder = test_folder()};
    CHECK(!setenv("WANDB_RUN_ID", "../x", 1));
    CHECK_STATUS(CONFIG, wandb_run_open(&w, &o, 0));
    CHECK_MESSAGE("WANDB_RUN_ID = \"../x\"");
    CHECK(!setenv("WANDB_RUN_ID", "mine-1", 1));
    CHECK_STATUS(OK, wandb_run_open(&w, &o, 0));
    wandb_run_close(w);
    unsetenv("WANDB_RUN_ID");
}
