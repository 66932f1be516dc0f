/* test_resume.c -- a resumed run equals the uninterrupted run bit for bit, even if it was killed at
 * any instant. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "base/rng.h"

#include <signal.h>
#include <time.h>

/* A folder with corpus.txt and run.toml; paths to them, to the dump folders a/ and b/, and to a
 * file for stderr. */
struct run_paths {
    char *corpus, *config, *a, *b, *err;
};

static struct run_paths run_paths_make(void)
{
    const char *folder = test_folder();
    struct run_paths p = {file_join(folder, "corpus.txt"), file_join(folder, "run.toml"),
                          file_join(folder, "a"), file_join(folder, "b"), file_join(folder, "err")};
    runs_write_corpus(p.corpus, 100000);
    runs_write_config(p.config, p.corpus);
    return p;
}

static void run_paths_release(struct run_paths *p)
{
    free(p->corpus), free(p->config), free(p->a), free(p->b), free(p->err);
}

static void check_same_checkpoint(const struct run_paths *p, int step)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint/step-%d", step);
    char *a = file_join(p->a, name), *b = file_join(p->b, name);
    runs_check_same_files(a, b, ".safetensors");
    runs_check_same_files(a, b, "state.json");
    free(a), free(b);
}

static void check_resume(const char *settings)
{
    struct run_paths p = run_paths_make();
    struct text half = {0};
    text_addf(&half, "%s training.steps=20", settings);
    CHECK(runs_train(p.config, p.a, settings, NULL) == 0);
    CHECK(runs_train(p.config, p.b, half.data, NULL) == 0);
    CHECK(runs_train(p.config, p.b, settings, NULL) == 0);
    runs_check_same_metrics(p.a, p.b);
    check_same_checkpoint(&p, 40);
    text_release(&half);
    run_paths_release(&p);
}

#define F32       "training.mixed_precision_param=float32 "
#define MASKED    "objective.name=masked objective.mask_token=<|mask|> "
#define DIFFUSION "objective.name=diffusion objective.mask_token=<|mask|> "
#define ASYNC     "checkpoint.async_mode=async "

TEST(a_resumed_run_equals_the_uninterrupted_run_in_bf16) { check_resume("debug.seed=1"); }
TEST(a_resumed_run_equals_the_uninterrupted_run_in_float32)
{
    if (TEST_SLOWED) skip(); /* other tests combine it */
    check_resume(F32);
}
TEST(a_resumed_run_equals_the_uninterrupted_run_with_async_saves)
{
    if (TEST_SLOWED) skip(); /* other tests combine it */
    check_resume(ASYNC);
}
TEST(a_resumed_run_equals_the_uninterrupted_run_with_masks) { check_resume(MASKED F32 ASYNC); }
TEST(a_resumed_run_equals_the_uninterrupted_run_of_diffusion)
{
    check_resume(
        DIFFUSION
        "validation.enable=true validation.freq=5 data.validation_share=0.1 validation.steps=3 ");
}
TEST(a_resumed_run_equals_the_uninterrupted_run_with_masks_in_bf16)
{
    if (TEST_SLOWED) skip(); /* other tests combine it */
    check_resume(MASKED);
}
TEST(a_resumed_run_equals_the_uninterrupted_run_in_float8)
{
    if (TEST_SLOWED) skip(); /* the next test combines it */
    check_resume("model.converters=[\"float8\"]");
}
TEST(a_resumed_run_equals_the_uninterrupted_run_in_float8_with_delayed_scales)
{
    if (TEST_SLOWED) skip(); /* test_ranks_float8 has the same code */
    check_resume("float8.enable_float8_linear=true float8.recipe_name=delayed "
                 "float8.amax_history_len=16 validation.enable=true validation.freq=5 "
                 "data.validation_share=0.1 validation.steps=3 " ASYNC);
}
TEST(a_resumed_run_equals_the_uninterrupted_run_with_validation)
{
    check_resume(
        "validation.enable=true validation.freq=5 data.validation_share=0.1 validation.steps=3");
}

TEST(a_resumed_run_equals_the_uninterrupted_run_with_packed_documents)
{
    check_resume("data.packing=best_fit model.attn_mask_type=block_causal data.streams=3");
}

TEST(a_resumed_run_equals_the_uninterrupted_run_in_a_batch_ramp)
{
    check_resume("training.local_batch_size=1 training.global_batch_size=8 "
                 "training.batch_ramp=2,2,80 lr_scheduler.formula=megatron "
                 "lr_scheduler.warmup_samples=20 lr_scheduler.total_samples=220 "
                 "optimizer.decoupled_lr=1e-3");
}

/* Starts training and kills it after `seconds`; true: it had already ended. */
static bool train_and_kill(const struct run_paths *p, const char *dump, bool async, double seconds)
{
    struct text setting = {0}, said = {0};
    text_addf(&setting, "job.dump_folder=%s", dump);
    pid_t child = RUNS_START(
        p->err, "train", p->config, setting.data, "checkpoint.interval=3",
        "checkpoint.keep_latest_k=3",
        async ? "checkpoint.async_mode=async" : "checkpoint.async_mode=disabled", "--quiet");
    struct timespec pause = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    int code = runs_wait(child, p->err, &said);
    if (code && code != 128 + SIGKILL) fail_msg("exit code %d: %s", code, said.data);
    text_release(&setting), text_release(&said);
    return code == 0;
}

/* LLAMERO_KILLS sets the number of kills. */
TEST(a_run_killed_at_any_moment_resumes_to_the_same_result)
{
    struct run_paths p = run_paths_make();
    const char *wanted = getenv("LLAMERO_KILLS");
    int kills = wanted ? atoi(wanted) : TEST_SLOWED ? 4 : 12, done = 0;
    const char *settings = "checkpoint.interval=3 checkpoint.keep_latest_k=3";
    CHECK(runs_train(p.config, p.a, settings, NULL) == 0);
    for (int i = 0; done < kills; i++) {
        double seconds = 0.02 + 0.35 * rng_uniform(3, RNG_TEST, 0, (uint64_t)i);
        bool ended = train_and_kill(&p, p.b, i % 2, seconds);
        done += !ended;
        if (ended) { /* compare, and start again */
            check_same_checkpoint(&p, 40);
            CHECK_STATUS(OK, file_remove_tree(p.b));
        }
    }
    CHECK(runs_train(p.config, p.b, settings, NULL) == 0);
    check_same_checkpoint(&p, 40);
    runs_check_same_metrics(p.a, p.b);
    run_paths_release(&p);
}

TEST(a_signal_writes_a_checkpoint_and_exits_with_75)
{
    static const int signals[] = {SIGTERM, SIGUSR1};
    for (size_t i = 0; i < 2; i++) {
        struct run_paths p = run_paths_make();
        struct text setting = {0}, said = {0};
        text_addf(&setting, "job.dump_folder=%s", p.b);
        pid_t child =
            RUNS_START(p.err, "train", p.config, setting.data, "training.steps=100000", "--quiet");
        char *metrics = file_join(p.b, "metrics.jsonl");
        runs_wait_for_bytes(metrics, 500);
        kill(child, signals[i]);
        CHECK(runs_wait(child, p.err, &said) == 75);
        int64_t stopped = (int64_t)runs_metric(p.b, "step");
        struct text name = {0};
        text_addf(&name, "%s/checkpoint/step-%lld/manifest.json", p.b, (long long)stopped);
        CHECK(file_exists(name.data));
        text_release(&name), text_release(&setting), text_release(&said);
        free(metrics);
        run_paths_release(&p);
    }
}

/* Flips a bit of the weights of a checkpoint. */
static void damage(const char *dump, int step)
{
    struct text path = {0}, bytes = {0};
    text_addf(&path, "%s/checkpoint/step-%d/model-00001-of-00001.safetensors", dump, step);
    CHECK_STATUS(OK, file_read(path.data, 1 << 30, &bytes));
    bytes.data[bytes.len - 9] ^= 4;
    CHECK_STATUS(OK, file_write(path.data, bytes.data, bytes.len));
    text_release(&path), text_release(&bytes);
}

TEST(a_run_resumes_before_a_damaged_checkpoint_and_never_restarts_silently)
{
    struct run_paths p = run_paths_make();
    struct text err = {0};
    CHECK(runs_train(p.config, p.a, "", NULL) == 0);
    CHECK(runs_train(p.config, p.b, "training.steps=20", NULL) == 0);
    damage(p.b, 20);
    CHECK(runs_train(p.config, p.b, "", &err) == 0); /* from step 10 */
    CHECK(strstr(err.data, "falling back to an older checkpoint"));
    check_same_checkpoint(&p, 40);
    for (int step = 10; step <= 40; step += 10) damage(p.b, step);
    CHECK(runs_train(p.config, p.b, "training.steps=50", &err) == 65);
    CHECK(strstr(err.data, "no intact checkpoint found (4 "));
    text_release(&err);
    run_paths_release(&p);
}

/* A requeued job has the same settings as the run's first start. */
TEST(a_run_leaves_parts_of_its_start_out_only_once)
{
    struct run_paths p = run_paths_make();
    struct text settings = {0}, err = {0};
    CHECK(runs_train(p.config, p.a, "training.steps=10 optimizer.name=Muon", NULL) == 0);
    text_addf(&settings,
              "checkpoint.initial_load_path=%s checkpoint.initial_load_model_only=false "
              "checkpoint.exclude_from_loading=optimizer,lr_scheduler,dataloader",
              p.a);
    check_resume(settings.data);
    /* Also of the run's own checkpoint, which has Muon's moments. */
    CHECK(runs_train(p.config, p.a, "training.steps=20", &err) == 78);
    CHECK(strstr(err.data, "the checkpoint has the state of Muon; set optimizer.name = "));
    const char *own = "training.steps=20 checkpoint.exclude_from_loading=optimizer";
    CHECK(runs_train(p.config, p.a, own, NULL) == 0);
    CHECK(runs_train(p.config, p.a, "training.steps=30", NULL) == 0);
    CHECK(runs_train(p.config, p.b, "training.steps=10 optimizer.name=Muon", NULL) == 0);
    CHECK(runs_train(p.config, p.b, own, NULL) == 0);
    own = "training.steps=30 checkpoint.exclude_from_loading=optimizer";
    CHECK(runs_train(p.config, p.b, own, NULL) == 0);
    check_same_checkpoint(&p, 30);
    own = "training.steps=40 checkpoint.exclude_from_loading=optimizer optimizer.name=Muon";
    CHECK(runs_train(p.config, p.b, own, &err) == 78);
    CHECK(strstr(err.data, "had its effect on an earlier start"));
    text_release(&settings), text_release(&err);
    run_paths_release(&p);
}

static bool has_step(const char *dump, const char *name)
{
    return file_exists(test_path(test_path(dump, "checkpoint"), name));
}

/* The steps of its earlier checkpoints are counted from another start. */
TEST(a_run_that_counts_steps_from_0_again_leaves_one_lineage)
{
#define STAGE "data.stage.0.at_step=10 data.stage.0.seq_len=24 lr_scheduler.total_steps=40 "
    struct run_paths p = run_paths_make();
    const char *again = STAGE "training.steps=14 checkpoint.exclude_from_loading=lr_scheduler";
    const char *both = STAGE "training.steps=20 checkpoint.exclude_from_loading=lr_scheduler";
    CHECK(runs_train(p.config, p.a, STAGE "training.steps=30", NULL) == 0);
    CHECK(test_run((const char *[]){"cp", "-r", p.a, p.b, NULL}, NULL, NULL) == 0);
    const char *seed = STAGE "training.steps=20 checkpoint.exclude_from_loading=lr_scheduler "
                             "checkpoint.create_seed_checkpoint=true";
    CHECK(runs_train(p.config, p.b, seed, NULL) == 0);
    CHECK(!has_step(p.b, "step-0") && has_step(p.b, "step-30"));
    CHECK(runs_train(p.config, p.a, again, NULL) == 0);
    CHECK(has_step(p.a, "step-0") && has_step(p.a, "abandoned-0-1/step-30"));
    runs_check_same_metrics(test_path(p.a, "checkpoint/abandoned-0-1"), p.b);
    CHECK(runs_train(p.config, p.a, both, NULL) == 0); /* as a requeue has it: from step 14 */
    CHECK(runs_train(p.config, p.b, both, NULL) == 0);
    check_same_checkpoint(&p, 20);
    CHECK(!has_step(p.b, "step-30"));
    run_paths_release(&p);
}

TEST(saves_leave_folders_of_later_steps_alone)
{
    struct run_paths p = run_paths_make();
    CHECK(runs_train(p.config, p.a, "training.steps=10", NULL) == 0);
    CHECK_STATUS(OK, file_make_dirs(test_path(p.a, "checkpoint/step-0040"))); /* a user's */
    CHECK(runs_train(p.config, p.a, "training.steps=20", NULL) == 0);
    CHECK(has_step(p.a, "step-20") && has_step(p.a, "step-0040"));
    run_paths_release(&p);
}

TEST(load_step_goes_back_once_and_leaves_one_lineage)
{
    struct run_paths p = run_paths_make();
    struct text err = {0};
    CHECK(runs_train(p.config, p.b, "training.steps=30", NULL) == 0);
    /* a: from step 10 on, as if the run had never been further. */
    char *from = file_join(p.b, "checkpoint/step-10"), *to = file_join(p.a, "checkpoint/");
    CHECK_STATUS(OK, file_make_dirs(to));
    CHECK(test_run((const char *[]){"cp", "-r", from, to, NULL}, NULL, NULL) == 0);
    CHECK(runs_train(p.config, p.a, "training.steps=40 optimizer.lr=1e-3", NULL) == 0);
    const char *back = "training.steps=25 optimizer.lr=1e-3 checkpoint.load_step=10";
    CHECK(runs_train(p.config, p.b, back, &err) == 0);
    CHECK(strstr(err.data, "abandoned-10-1") && strstr(err.data, "optimizer.lr: 0.003 -> 0.001"));
    CHECK(has_step(p.b, "abandoned-10-1/step-30") && has_step(p.b, "abandoned-10-1/metrics.jsonl"));
    CHECK(!has_step(p.b, "step-30") && has_step(p.b, "step-25"));
    /* The same command again, as a requeue has it, resumes from step 25. */
    back = "training.steps=40 optimizer.lr=1e-3 checkpoint.load_step=10";
    CHECK(runs_train(p.config, p.b, back, &err) == 0);
    CHECK(strstr(err.data, "resuming from") && strstr(err.data, "done by an earlier start"));
    CHECK(!has_step(p.b, "abandoned-10-2"));
    check_same_checkpoint(&p, 40);
    /* Without load_step the run continues, and load_step may go back to the same step again. */
    CHECK(runs_train(p.config, p.b, "training.steps=42 optimizer.lr=1e-3", &err) == 0);
    CHECK(!strstr(err.data, "done by an earlier start"));
    CHECK(runs_train(p.config, p.b, back, &err) == 0);
    CHECK(has_step(p.b, "abandoned-10-2/step-42"));
    free(from), free(to);
    text_release(&err);
    run_paths_release(&p);
}
