// SPDX-License-Identifier: Apache-2.0
#include "base/full_disk.h"
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "metrics/metrics.h"

#include <fcntl.h>
#include <unistd.h>

static const struct metrics_config plain = {.save_tb_folder = "tb"};
static const struct metrics_config board = {.save_tb_folder = "tb", .enable_tensorboard = true};

static struct metrics *start_run(const char *folder, const struct metrics_config *c,
                                 int64_t first_step, bool is_unsaved)
{
    struct metrics *m;
    struct metrics_options o = {.config = c,
                                .dump_folder = folder,
                                .first_step = first_step,
                                .is_unsaved = is_unsaved,
                                .last_step = 100,
                                .num_ranks = 2,
                                .flops_per_token = 1e9,
                                .peak_flops = 1e12,
                                .memory_total_bytes = 1e9};
    log_set_quiet(true);
    CHECK_STATUS(OK, metrics_open(&m, &o));
    return m;
}

static struct metrics *start(const char *folder, const struct metrics_config *c, int64_t first_step)
{
    return start_run(folder, c, first_step, false);
}

static void stop(struct metrics *m)
{
    metrics_close(m);
    log_set_quiet(false);
}

static void log_step(struct metrics *m, int64_t step, double loss)
{
    struct step_metrics s = {.step = step,
                             .loss = loss,
                             .max_loss = loss + 1,
                             .grad_norm = 0.5,
                             .lr = 3e-4,
                             .tokens_seen = step * 1000,
                             .tokens = 10000,
                             .steps = 10,
                             .seconds = 4,
                             .data_seconds = 1,
                             .memory_bytes = 123456789};
    metrics_step(m, &s);
}

static char *lines_of(const char *folder)
{
    struct text t = {0};
    const char *path = test_path(folder, "metrics.jsonl");
    CHECK_STATUS(OK, file_read(path, 1 << 24, &t));
    return t.data;
}

TEST(metrics_lines_have_exactly_the_documented_keys)
{
    const char *folder = test_folder();
    struct metrics *m = start(folder, &plain, 0);
    log_step(m, 10, 8.0491301234);
    stop(m);
    char *lines = lines_of(folder);
    CHECK(!strcmp(lines, "{\"step\":10,\"loss\":8.04913012,\"max_loss\":9.04913012,"
                         "\"grad_norm\":0.5,\"lr\":0.0003,\"tokens_seen\":10000,"
                         "\"tokens_per_second\":2500,\"tokens_per_second_per_rank\":1250,"
                         "\"tflops_per_rank\":1.25,\"mfu\":1.25,\"step_seconds\":0.4,"
                         "\"data_seconds\":0.1,\"memory_bytes\":123456789}\n"));
    free(lines);
}

TEST(metrics_lines_have_the_share_of_padding_if_there_is_any)
{
    const char *folder = test_folder();
    struct metrics *m = start(folder, &plain, 0);
    for (int64_t step = 1; step <= 2; step++)
        metrics_step(m,
                     &(struct step_metrics){.step = step, .tokens = 1000, .padding = step % 2 * 7});
    stop(m);
    char *lines = lines_of(folder), *second = strchr(lines, '\n');
    CHECK(second && !strncmp(second - 17, ",\"padding\":0.007}", 17));
    CHECK(!strstr(second, "padding"));
    free(lines);
}

TEST(metrics_round_trip_every_float)
{
    const char *folder = test_folder();
    struct metrics *m = start(folder, &plain, 0);
    float loss = 2.71828174f;
    for (int64_t step = 1; step <= 200; step++, loss = nextafterf(loss, 9)) log_step(m, step, loss);
    stop(m);
    char *lines = lines_of(folder), *rest = lines;
    loss = 2.71828174f;
    for (int i = 0; i < 200; i++, loss = nextafterf(loss, 9)) {
        struct json *v;
        char *line = strsep(&rest, "\n");
        CHECK_STATUS(OK, json_parse(line, strlen(line), "line", &v));
        CHECK((float)json_number(json_get(v, "loss")) == loss);
        json_free(v);
    }
    free(lines);
}

TEST(non_finite_metrics_are_null)
{
    const char *folder = test_folder();
    struct metrics *m = start(folder, &board, 0);
    log_step(m, 1, NAN);
    log_step(m, 2, INFINITY);
    metrics_validation(m, 2, NAN, 1, 1, 1);
    stop(m);
    char *lines = lines_of(folder), *rest = lines;
    for (int i = 0; i < 3; i++) {
        struct json *v;
        char *line = strsep(&rest, "\n");
        CHECK_STATUS(OK, json_parse(line, strlen(line), "line", &v));
        CHECK(json_is_null(json_get(v, i < 2 ? "loss" : "validation_loss")));
        json_free(v);
    }
    CHECK(rest && !*rest);
    free(lines);
}

TEST(metrics_validation_lines_have_a_step_and_a_loss)
{
    const char *folder = test_folder();
    struct metrics *m = start(folder, &plain, 0);
    metrics_validation(m, 20, 7.25, 2, 4096, 1);
    stop(m);
    char *lines = lines_of(folder);
    CHECK(!strcmp(lines, "{\"step\":20,\"validation_loss\":7.25}\n"));
    free(lines);
}

TEST(metrics_of_a_resumed_run_equal_an_uninterrupted_one)
{
    const char *straight = test_folder(), *resumed = test_folder();
    struct metrics *m = start(straight, &plain, 0);
    for (int64_t step = 1; step <= 6; step++) log_step(m, step, 9.0 / (double)step);
    stop(m);
    m = start(resumed, &plain, 0);
    for (int64_t step = 1; step <= 5; step++) log_step(m, step, 9.0 / (double)step);
    stop(m);
    m = start(resumed, &plain, 3); /* killed after step 5; the checkpoint was of step 3 */
    for (int64_t step = 4; step <= 6; step++) log_step(m, step, 9.0 / (double)step);
    stop(m);
    char *a = lines_of(straight), *b = lines_of(resumed);
    CHECK(!strcmp(a, b));
    free(a);
    free(b);
}

/* Returns the start of the next record, and this one's length. */
static size_t next_record(const struct text *t, size_t at, size_t *len)
{
    CHECK(at + 16 <= t->len);
    *len = (unsigned char)t->data[at] + 256u * (unsigned char)t->data[at + 1];
    CHECK(at + 16 + *len <= t->len);
    return at + 16 + *len;
}

TEST(metrics_write_one_event_file_per_start)
{
    const char *folder = test_folder();
    struct metrics *m = start(folder, &board, 0);
    log_step(m, 1, 3);
    stop(m);
    m = start(folder, &board, 1);
    log_step(m, 2, 2);
    metrics_validation(m, 2, 7.25, 2, 4096, 1);
    stop(m);
    struct file_list names;
    struct text t = {0};
    const char *tb = test_path(folder, "tb");
    CHECK_STATUS(OK, file_list_dir(&names, tb));
    CHECK(names.count == 2);
    CHECK_STATUS(OK, file_read(test_path(tb, names.paths[1]), 1 << 20, &t));
    size_t len, at = next_record(&t, 0, &len);
    CHECK(memmem(t.data, at, "brain.Event:2", 13));
    const char mark[] = {0x10, 2, 0x3a, 2, 8, 1}; /* step 2, session log: start */
    CHECK(memmem(t.data + at, 12 + 9 + sizeof mark, mark, sizeof mark));
    at = next_record(&t, at, &len);
    static const char *const tags[] = {"loss_metrics/global_avg_loss",
                                       "loss_metrics/global_max_loss",
                                       "grad_norm",
                                       "throughput(tps)",
                                       "tflops",
                                       "mfu(%)",
                                       "time_metrics/end_to_end(s)",
                                       "time_metrics/data_loading(s)",
                                       "time_metrics/data_loading(%)",
                                       "memory/max_active(GiB)",
                                       "memory/max_active(%)",
                                       "memory/max_reserved(GiB)",
                                       "memory/max_reserved(%)",
                                       "memory/num_alloc_retries",
                                       "memory/num_ooms",
                                       "n_tokens_seen",
                                       "lr"};
    size_t step_record = at;
    at = next_record(&t, at, &len);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        CHECK(memmem(t.data + step_record, at - step_record, tags[i], strlen(tags[i])));
    CHECK(memmem(t.data + at, t.len - at, "validation_metrics/loss", 23));
    CHECK(next_record(&t, at, &len) == t.len);
    file_list_release(&names);
    text_release(&t);
}

TEST(metrics_name_the_file_they_cannot_write)
{
    struct metrics *m = NULL;
    const char *folder = test_folder();
    const char *file = test_path(folder, "taken");
    CHECK_STATUS(OK, file_write(file, "x", 1));
    struct metrics_options o = {.config = &plain, .dump_folder = file, .num_ranks = 1};
    CHECK_STATUS(IO, metrics_open(&m, &o));
    CHECK_MESSAGE("taken");
    CHECK(m == NULL);
    metrics_close(NULL);
}

/* The only file in folder/tb. */
static void read_events(const char *folder, struct text *events)
{
    struct file_list names;
    const char *tb = test_path(folder, "tb");
    CHECK_STATUS(OK, file_list_dir(&names, tb));
    CHECK(names.count == 1);
    CHECK_STATUS(OK, file_read(test_path(tb, names.paths[0]), 1 << 24, events));
    file_list_release(&names);
}

TEST(metrics_of_a_full_disk_are_written_late)
{
    const char *full = test_folder(), *roomy = test_folder();
    struct text events = {0};
    for (int i = 0; i < 2; i++) {
        struct metrics *m = start(i ? full : roomy, &board, 0);
        for (int64_t step = 1; step <= 30; step++) {
            if (i && step == 5) full_disk_begin(1000); /* within a line */
            if (i && step == 25) full_disk_end();
            log_step(m, step, 9.0 / (double)step);
            if (step == 20) metrics_validation(m, step, 7.25, 2, 4096, 1);
        }
        stop(m);
    }
    char *a = lines_of(full), *b = lines_of(roomy);
    CHECK(!strcmp(a, b));
    read_events(full, &events);
    size_t at = 0, len, records = 0;
    for (; at < events.len; records++) at = next_record(&events, at, &len);
    CHECK(records == 2 + 30 + 1);
    text_release(&events);
    free(a), free(b);
}

static void lose_lines(const struct metrics_config *c)
{
    enum { STEPS = 9000 }; /* more than fit in memory */
    const char *folder = test_folder(), *log = test_path(folder, "log.txt"), *at;
    struct text said = {0};
    struct metrics *m = start(folder, c, 0);
    log_step(m, 1, 1);
    full_disk_begin(0);
    for (int step = 2; step <= STEPS; step++) log_step(m, step, 1);
    full_disk_end();
    CHECK_STATUS(OK, log_open(log));
    log_step(m, STEPS + 1, 1);
    stop(m);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(log, 1 << 20, &said));
    CHECK(strstr(said.data, "metrics.jsonl: written again; "));
    char *lines = lines_of(folder), *gap = strstr(lines, "{\"step\":9000,\"gap\":");
    CHECK(gap && strstr(gap, "{\"step\":9001,\"loss\":"));
    int count = 0, lost = atoi(gap + strlen("{\"step\":9000,\"gap\":"));
    for (at = lines; (at = strstr(at, "\"loss\":")); at++) count++;
    CHECK(lost > 100 && count + lost == STEPS + 1);
    free(lines);
    text_release(&said);
}

TEST(metrics_log_late_writes_and_lost_lines)
{
    const struct metrics_config nxdt = {
        .save_tb_folder = "tb", .enable_tensorboard = true, .tensorboard_tags = TAGS_nxdt};
    lose_lines(&plain);
    lose_lines(&nxdt); /* whose events have other steps */
}

TEST(metrics_that_stay_late_are_lost_with_a_warning)
{
    const char *folder = test_folder();
    int ends[2], old = dup(STDERR_FILENO);
    char said[4096] = "";
    struct metrics *m = start(folder, &plain, 0);
    CHECK(old >= 0 && !pipe2(ends, O_CLOEXEC) && dup2(ends[1], STDERR_FILENO) >= 0);
    full_disk_begin(0);
    log_step(m, 1, 1);
    log_step(m, 2, 1);
    stop(m);
    full_disk_end();
    dup2(old, STDERR_FILENO);
    close(ends[1]);
    CHECK(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]), close(old);
    CHECK(strstr(said, "metrics.jsonl: write: File too large; each record tries again"));
    CHECK(strstr(said, "the last 2 records are lost"));
}

TEST(metrics_print_the_configured_console_dialect)
{
    static const enum console_dialect dialects[] = {CONSOLE_torchtitan, CONSOLE_megatron,
                                                    CONSOLE_nxdt};
    static const char *const lines[] = {"step:  4  loss:", "] iteration        4/     100 |",
                                        "| 4/100 ["};
    for (int i = 0; i < 3; i++) {
        const char *folder = test_folder(), *log = test_path(folder, "log.txt");
        struct metrics_config c = {.save_tb_folder = "tb", .console = dialects[i]};
        struct text t = {0};
        CHECK_STATUS(OK, log_open(log));
        struct metrics *m = start(folder, &c, 0);
        for (int step = 1; step <= 4; step++) log_step(m, step, 2);
        metrics_summarize(m);
        stop(m);
        CHECK_STATUS(OK, log_open(NULL));
        CHECK_STATUS(OK, file_read(log, 1 << 20, &t));
        CHECK(strstr(t.data, lines[i]));
        CHECK(!strstr(t.data, "elapsed time per iteration: 400") == (i != 1));
        CHECK(metrics_needs_parameter_norm(&c) == (i == 2));
        text_release(&t);
    }
}

TEST(metrics_may_have_the_tags_of_nxd_training)
{
    const struct metrics_config c = {
        .save_tb_folder = "tb", .enable_tensorboard = true, .tensorboard_tags = TAGS_nxdt};
    static const char *const tags[] = {"reduced_train_loss", "lr",         "gradient_norm",
                                       "global_step",        "throughput", "throughput_peak",
                                       "consumed_samples",   "val_loss",   "parameter_norm"};
    const char *folder = test_folder();
    struct metrics *m = start(folder, &c, 0);
    struct step_metrics s = {.step = 10, .loss = 2, .steps = 10, .seconds = 4, .parameter_norm = 7};
    struct text events = {0};
    struct file_list names;
    metrics_step(m, &s);
    metrics_validation(m, 10, 3, 1, 1, 1);
    stop(m);
    CHECK_STATUS(OK, file_list_dir(&names, test_path(folder, "tb")));
    CHECK(names.count == 1);
    CHECK_STATUS(OK,
                 file_read(test_path(test_path(folder, "tb"), names.paths[0]), 1 << 20, &events));
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        CHECK(memmem(events.data, events.len, tags[i], strlen(tags[i])));
    CHECK(!memmem(events.data, events.len, "loss_metrics", 12));
    char *lines = lines_of(folder);
    CHECK(strstr(lines, "\"parameter_norm\":7"));
    free(lines);
    file_list_release(&names);
    text_release(&events);
}

TEST(parameter_norm_is_computed_if_it_is_reported)
{
    struct metrics_config c = {.console = CONSOLE_megatron};
    CHECK(!metrics_needs_parameter_norm(&c));
    c.log_parameter_norm = true;
    CHECK(metrics_needs_parameter_norm(&c));
}

TEST(scores_of_a_task_are_a_line_and_scalars)
{
    const char *folder = test_folder();
    struct metrics *m = start(folder, &board, 0);
    struct task_item item = {0, 1, 0};
    char name[] = "small";
    struct task t = {
        .name = name, .format = &task_formats[TASK_FORMAT_arc], .items = &item, .num_items = 1};
    struct task_result r = {.items = 5, .correct = 2, .correct_norm = 3};
    metrics_task(m, 7, &t, &r);
    stop(m);
    char *lines = lines_of(folder);
    const char *line = "{\"step\":7,\"task\":\"small\",\"format\":\"arc\",\"items\":5,"
                       "\"acc\":0.4,\"acc_stderr\":0.24494";
    CHECK(!strncmp(lines, line, strlen(line)));
    CHECK(strstr(lines, "\"acc_norm\":0.6,"));
    free(lines);
    struct file_list files;
    struct text events = {0};
    CHECK_STATUS(OK, file_list_dir(&files, test_path(folder, "tb")));
    CHECK(files.count == 1);
    CHECK_STATUS(OK,
                 file_read(test_path(test_path(folder, "tb"), files.paths[0]), 1 << 20, &events));
    CHECK(memmem(events.data, events.len, "tasks/small/acc_norm", 20));
    file_list_release(&files);
    text_release(&events);
}

TEST(a_resume_keeps_scores_of_its_first_step_at_nxd_trainings_steps)
{
    const struct metrics_config c = {
        .enable_mlflow = true, .mlflow_experiment = "apples", .tensorboard_tags = TAGS_nxdt};
    const char *folder = test_folder();
    char name[] = "small";
    struct task t = {.name = name, .format = &task_formats[TASK_FORMAT_arc]};
    struct task_result r = {.items = 5, .correct = 2};
    struct metrics *m = start(folder, &c, 0);
    log_step(m, 7, 2);
    metrics_task(m, 7, &t, &r);
    stop(m);
    stop(start(folder, &c, 7));
    struct file_list files;
    struct text line = {0};
    CHECK_STATUS(OK, file_glob(&files, test_path(folder, "mlruns/*/*/metrics/tasks/small/acc")));
    CHECK_STATUS(OK, file_read(files.paths[0], 1 << 10, &line));
    CHECK(strstr(line.data, " 0.4 6\n")); /* steps count from 0 */
    file_list_release(&files);
    text_release(&line);
}

TEST(without_checkpoints_a_new_start_keeps_the_lines_of_earlier_ones)
{
    const char *folder = test_folder();
    for (int i = 0; i < 3; i++) {
        struct metrics *m = start_run(folder, &plain, 0, true);
        log_step(m, 1, 10 + i);
        stop(m);
    }
    struct text first = {0}, second = {0};
    CHECK_STATUS(OK, file_read(test_path(folder, "metrics.1.jsonl"), 1 << 20, &first));
    CHECK_STATUS(OK, file_read(test_path(folder, "metrics.2.jsonl"), 1 << 20, &second));
    char *last = lines_of(folder);
    CHECK(strstr(first.data, "\"loss\":10") && strstr(second.data, "\"loss\":11"));
    CHECK(strstr(last, "\"loss\":12") && !strstr(last, "\"loss\":11"));
    text_release(&first), text_release(&second);
    free(last);
}
