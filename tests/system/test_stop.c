/* test_stop.c -- no signal, closed stream, full disk or bad record costs a run its last whole step.
 */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "base/clock.h"

static const char *new_folder(void)
{
    const char *folder = test_folder();
    runs_write_corpus(test_path(folder, "corpus.txt"), 60000);
    runs_write_config(test_path(folder, "run.toml"), test_path(folder, "corpus.txt"));
    return folder;
}

/* Runs a line of shell; "$train DUMP SETTINGS" trains.  Returns the exit code. */
static int run_shell(const char *folder, const char *line, struct text *err)
{
    const char *program = getenv("LLAMERO");
    struct text all = {0};
    char *path = realpath(program ? program : "build/llamero", NULL);
    CHECK(path);
    text_addf(
        &all,
        "cd %s && train='%s train run.toml checkpoint.interval=100000 device.threads=1' && %s",
        folder, path, line);
    int code = test_run((const char *const[]){"sh", "-c", all.data, NULL}, NULL, err);
    text_release(&all);
    free(path);
    return code;
}

/* The only checkpoint in folder/DUMP; -1: none. */
static int64_t saved_step(const char *folder, const char *dump)
{
    struct file_list names;
    int64_t step = -1;
    const char *checkpoints = test_path(test_path(folder, dump), "checkpoint");
    CHECK_STATUS(OK, file_list_dir(&names, checkpoints));
    for (size_t i = 0; i < names.count; i++) {
        if (names.paths[i][0] == '.') continue;
        CHECK(step < 0 && sscanf(names.paths[i], "step-%ld", &step) == 1);
        CHECK(file_exists_in(test_path(checkpoints, names.paths[i]), "manifest.json"));
    }
    file_list_release(&names);
    return step;
}

static bool log_has(const char *folder, const char *dump, const char *words)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(test_path(test_path(folder, dump), "log.txt"), 1 << 24, &t));
    bool found = strstr(t.data, words);
    text_release(&t);
    return found;
}

static void check_same_checkpoint(const char *folder, const char *a, const char *b, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint/step-%lld", (long long)step);
    const char *x = test_path(test_path(folder, a), name);
    const char *y = test_path(test_path(folder, b), name);
    runs_check_same_files(x, y, ".safetensors");
    runs_check_same_files(x, y, "state.json");
}

/* --- signals --- */

/* Waits in a shell until a file has a text. */
#define UNTIL(file, words)                                                                         \
    "n=0; until grep -qs '" words "' " file " || [ $n = 3000 ]; do n=$((n+1)); sleep 0.01; done; "

TEST(every_signal_that_asks_a_run_to_end_leaves_its_last_step)
{
    static const char *const signals[] = {"HUP", "INT", "USR2", "XCPU", "XFSZ"};
    const char *folder = new_folder();
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i += TEST_SLOWED ? 4 : 1) {
        char line[512], words[64];
        snprintf(line, sizeof line,
                 "{ $train job.dump_folder=%s training.steps=100000 --quiet & p=$!; " UNTIL(
                     "%s/metrics.jsonl", "tokens_seen") "kill -%s $p; wait $p; }",
                 signals[i], signals[i], signals[i]);
        CHECK(run_shell(folder, line, NULL) == 75);
        CHECK(saved_step(folder, signals[i]) ==
              (int64_t)runs_metric(test_path(folder, signals[i]), "step"));
        snprintf(words, sizeof words, "stopped by SIG%s after step", signals[i]);
        CHECK(log_has(folder, signals[i], words));
    }
}

TEST(more_signals_during_the_save_do_not_lose_it)
{
    const char *folder = new_folder();
    CHECK(run_shell(folder,
                    "{ $train job.dump_folder=a training.steps=100000 --quiet model.dim=256 "
                    "model.n_layers=4 & p=$!; " UNTIL(
                        "a/metrics.jsonl",
                        "tokens_seen") "n=0; while kill -TERM $p 2>/dev/null && [ $n -lt 3000 ]; "
                                       "do n=$((n+1)); "
                                       "kill -USR1 $p 2>/dev/null; sleep 0.01; done; wait $p; }",
                    NULL) == 75);
    CHECK(saved_step(folder, "a") > 0);
    CHECK(LLAMERO(NULL, NULL, "checkpoint", "verify",
                  test_path(test_path(folder, "a"), "checkpoint")) == 0);
}

#define VALIDATION                                                                                 \
    " training.steps=10 validation.enable=true validation.freq=10 "                                \
    "validation.dataset_path=big.txt --quiet"
#define INTERRUPT(settings, file, words)                                                           \
    "{ $train job.dump_folder=b" settings " & p=$!; " UNTIL(file, words) "kill -USR1 $p; wait "    \
                                                                         "$p; }"

static const char *folder_with_validation_data(void)
{
    const char *folder = new_folder();
    runs_write_corpus(test_path(folder, "big.txt"), TEST_SLOWED ? 50000 : 500000);
    return folder;
}

/* The last step has been logged when the signal comes, or the run has resumed after it. */
TEST(a_validation_that_a_signal_interrupts_is_done_when_the_run_resumes)
{
#define FROM_B /* but with its own steps */                                                        \
    "validation.enable=true validation.dataset_path=big.txt "                                      \
    "checkpoint.initial_load_path=b/checkpoint/step-10 "                                           \
    "checkpoint.initial_load_model_only=false checkpoint.exclude_from_loading=lr_scheduler"
    const char *folder = folder_with_validation_data();
    CHECK(run_shell(folder, "$train job.dump_folder=a" VALIDATION, NULL) == 0);
    CHECK(run_shell(folder, INTERRUPT(VALIDATION, "b/metrics.jsonl", "\"step\":10,"), NULL) == 75);
    CHECK(run_shell(folder, INTERRUPT(VALIDATION, "b/log.txt", "resuming from"), NULL) == 75);
    CHECK(saved_step(folder, "b") == 10);
    CHECK(isnan(runs_metric(test_path(folder, "b"), "validation_loss")));
    CHECK(run_shell(folder, "$train job.dump_folder=c training.steps=2 " FROM_B, NULL) == 0);
    CHECK(run_shell(folder, "$train job.dump_folder=b" VALIDATION, NULL) == 0);
    runs_check_same_metrics(test_path(folder, "a"), test_path(folder, "b"));
    check_same_checkpoint(folder, "a", "b", 10);
    CHECK(run_shell(folder, "$train job.dump_folder=b" VALIDATION, NULL) == 0); /* nothing to do */
    runs_check_same_metrics(test_path(folder, "a"), test_path(folder, "b"));
}

TEST(an_interrupted_validation_after_the_last_step_of_a_data_stage_has_the_rows_of_that_stage)
{
#define STAGES VALIDATION " training.steps=12 data.stage.0.at_step=10 data.stage.0.seq_len=24"
    const char *folder = folder_with_validation_data();
    CHECK(run_shell(folder, "$train job.dump_folder=a" STAGES, NULL) == 0);
    CHECK(run_shell(folder, INTERRUPT(STAGES, "b/metrics.jsonl", "\"step\":10,"), NULL) == 75);
    CHECK(saved_step(folder, "b") == 10);
    CHECK(isnan(runs_metric(test_path(folder, "b"), "validation_loss")));
    CHECK(run_shell(folder, "$train job.dump_folder=b" STAGES, NULL) == 0);
    runs_check_same_metrics(test_path(folder, "a"), test_path(folder, "b"));
    check_same_checkpoint(folder, "a", "b", 12);
}

TEST(a_run_stops_before_its_slurm_job_ends)
{
    const char *folder = new_folder();
    double begin = clock_wall_s();
    CHECK(run_shell(folder,
                    "{ SLURM_JOB_END_TIME=$(($(date +%s) + 5)) $train job.dump_folder=a "
                    "training.steps=1000000 --quiet; }",
                    NULL) == 75);
    CHECK(clock_wall_s() < begin + 5.5 + (TEST_SLOWED ? 15 : 0));
    CHECK(saved_step(folder, "a") == (int64_t)runs_metric(test_path(folder, "a"), "step"));
    CHECK(log_has(folder, "a", "stopped ahead of the end of the Slurm job after step"));
    CHECK(
        run_shell(folder,
                  "{ $train job.dump_folder=a training.steps=1000000 --quiet & p=$!; " UNTIL(
                      "a/log.txt", "resuming from a/checkpoint/step-") "kill -TERM $p; wait $p; }",
                  NULL) == 75);
    CHECK(log_has(folder, "a", "resuming from a/checkpoint/step-"));
}

/* --- streams and full disks --- */

TEST(a_run_whose_output_nobody_reads_trains_to_its_end)
{
    const char *folder = new_folder();
    CHECK(run_shell(folder,
                    "{ { $train job.dump_folder=a; echo $? > code; } 2>&1 | head -2 >/dev/null; "
                    "exit $(cat code); }",
                    NULL) == 0);
    CHECK(saved_step(folder, "a") == 40);
    CHECK(log_has(folder, "a", "warning: stderr: write: Broken pipe"));
}

TEST(closed_standard_streams_do_not_become_files_of_the_run)
{
    const char *folder = new_folder();
    CHECK(run_shell(folder, "$train job.dump_folder=a", NULL) == 0);
    CHECK(run_shell(folder, "$train job.dump_folder=b 0<&- 1>&- 2>&-", NULL) == 0);
    runs_check_same_metrics(test_path(folder, "a"), test_path(folder, "b"));
    check_same_checkpoint(folder, "a", "b", 40);
    CHECK(log_has(folder, "b", "warning: stderr: write: Bad file descriptor"));
    CHECK(run_shell(folder, "${train%% *} init tiny >&-", NULL) == 74); /* results are not lost */
}

TEST(a_full_disk_of_metrics_does_not_end_the_run)
{
    const char *library = getenv("LLAMERO_PRELOAD");
    if (!library || !*library) skip();
    char line[1024], *whole = realpath(library, NULL);
    struct text err = {0};
    const char *folder = new_folder();
    CHECK(whole);
    CHECK(run_shell(folder, "$train job.dump_folder=a --quiet", NULL) == 0);
    snprintf(line, sizeof line,
             "{ FAULT=call=write,on=metrics.jsonl,nth=5,times=16,action=full,errno=ENOSPC "
             "LD_PRELOAD=%s $train job.dump_folder=b --quiet; }",
             whole);
    CHECK(run_shell(folder, line, &err) == 0);
    CHECK(strstr(err.data,
                 "b/metrics.jsonl: write: No space left on device; each record tries again"));
    CHECK(log_has(folder, "b", "b/metrics.jsonl: written again; "));
    runs_check_same_metrics(test_path(folder, "a"), test_path(folder, "b"));
    check_same_checkpoint(folder, "a", "b", 40);
    snprintf(line, sizeof line,
             "{ FAULT=call=write,on=/tb/,nth=5,times=0,action=full,errno=ENOSPC LD_PRELOAD=%s "
             "$train job.dump_folder=c metrics.enable_tensorboard=true --quiet; }",
             whole);
    CHECK(run_shell(folder, line, &err) == 0);
    CHECK(strstr(err.data, "records are lost"));
    runs_check_same_metrics(test_path(folder, "a"), test_path(folder, "c"));
    check_same_checkpoint(folder, "a", "c", 40);
    text_release(&err);
    free(whole);
}

/* --- failures --- */

/* Documents of JSON, one of which is not UTF-8. */
static void write_bad_corpus(const char *folder)
{
    struct text t = {0};
    const char *path = test_path(folder, "bad.jsonl");
    runs_write_corpus(path, 40000);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    char *middle = strstr(t.data + t.len / 4, "llama");
    middle[2] = (char)0xff;
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

static void check_data_failure(int ranks)
{
    const char *folder = new_folder();
    char settings[512];
    struct text err = {0};
    write_bad_corpus(folder);
    runs_write_config(test_path(folder, "run.toml"), test_path(folder, "bad.jsonl"));
    static const char common[] =
        "lr_scheduler.total_steps=1000 data.streams=2 checkpoint.interval=100000 "
        "model.vocab_size=264 device.threads=1 training.local_batch_size=1 --quiet training.steps=";
    snprintf(settings, sizeof settings, "%s1000", common);
    int code = runs_train_ranks(ranks, test_path(folder, "run.toml"), test_path(folder, "a"),
                                settings, &err);
    if (code < 0) skip();
    CHECK(code == 65 && strstr(err.data, "is not UTF-8"));
    int64_t step = saved_step(folder, "a");
    CHECK(step > 3 && step == (int64_t)runs_metric(test_path(folder, "a"), "step"));
    CHECK(log_has(folder, "a", "that state is saved"));
    snprintf(settings, sizeof settings, "%s%lld", common, (long long)step);
    CHECK(runs_train_ranks(ranks, test_path(folder, "run.toml"), test_path(folder, "b"), settings,
                           NULL) == 0);
    check_same_checkpoint(folder, "a", "b", step);
    text_release(&err);
}

TEST(a_bad_record_ends_a_run_with_the_state_before_it_saved) { check_data_failure(1); }
TEST(a_bad_record_of_one_rank_ends_all_with_the_state_before_it_saved) { check_data_failure(2); }
