// SPDX-License-Identifier: Apache-2.0
#include "train/rollback.h"

#include "base/file.h"
#include "comm/ranks.h"
#include "system/layouts.h"
#include "system/runs.h"
#include "train/run.h"
#include "train/trainer_state.h"
#include "train/training.h"

#include <stdlib.h>

/* Documents of 33 tokens with bos and eos, always the same text, and after 3300 tokens one that is
 * nothing like them: with 32 tokens a step it is in step 104, rows 206 and 207.  `breaks`: bad
 * records before, in and after that step's rows. */
static void write_corpus(const char *path, bool breaks)
{
    struct text t = {0};
    for (int i = 0; i < 500; i++) {
        if (breaks && (i == 50 || i == 101 || i == 106)) text_addf(&t, "broken %d\n", i);
        text_adds(&t, i == 100 ? "{\"text\": \"ZQX!&7K#W@9PJ(Y)2+$\"}\n"
                               : "{\"text\": \"abcdefgh abcdefgh abcdefgh abcd\"}\n");
    }
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

struct spike_run {
    const char *folder;
    char corpus[300], dump[300];
    const char *settings[40];
    int num_settings;
    struct config config;
    struct training machine; /* whose machine runs it */
};

static void spike_run_open(struct spike_run *s, const char *const *more)
{
    static const char *const base[] = {TRAINING_OF_CHECKPOINTS, "training.steps=120",
                                       "data.tokenizer=bytes",  "data.streams=1",
                                       "data.shuffle_window=1", "data.prefetch=7",
                                       "optimizer.lr=1e-2",     "lr_scheduler.warmup_steps=2",
                                       "metrics.log_freq=1",    "checkpoint.interval=10"};
    *s = (struct spike_run){.folder = test_folder()};
    const char *corpus = test_path(s->folder, "corpus.jsonl");
    write_corpus(corpus, false);
    snprintf(s->corpus, sizeof s->corpus, "training.dataset_path=%s", corpus);
    snprintf(s->dump, sizeof s->dump, "job.dump_folder=%s", test_path(s->folder, "run"));
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        s->settings[s->num_settings++] = base[i];
    s->settings[s->num_settings++] = s->corpus, s->settings[s->num_settings++] = s->dump;
    while (*more) s->settings[s->num_settings++] = *more++;
    CHECK_STATUS(OK, config_load(&s->config, NULL, s->settings, s->num_settings));
    CHECK_STATUS(OK, config_check(&s->config, 1));
    TRAINING_OPEN(&s->machine, "debug.seed=1");
    arena_release(&s->machine.machine.queue->scratch);
}
#define SPIKE_RUN_OPEN(s, ...) spike_run_open(s, (const char *const[]){__VA_ARGS__, NULL})

static enum status train(struct spike_run *s) { return run_train(&s->config, &s->machine.machine); }

static void spike_run_close(struct spike_run *s)
{
    config_release(&s->config);
    training_close(&s->machine);
}

static const char *step_path(const struct spike_run *s, const char *step)
{
    return test_path(test_path(s->folder, "run/checkpoint"), step);
}

static char *read_text(const struct spike_run *s, const char *name)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(test_path(test_path(s->folder, "run"), name), 1 << 24, &t));
    return t.data;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

/* The buffers of a trainer, to load a checkpoint into. */
static struct checkpoint_state state_of(struct trainer *t)
{
    return (struct checkpoint_state){.shape = &t->shape,
                                     .layout = &t->whole,
                                     .shard = &t->shard,
                                     .world = &t->machine.groups.of[GROUP_world],
                                     .weights = t->optim.weights,
                                     .exp_avg = t->optim.exp_avg,
                                     .exp_avg_sq = t->optim.exp_avg_sq,
                                     .moments = F32,
                                     .queue = t->machine.queue,
                                     .dtype = SAFETENSORS_F32,
                                     .step = t->steps_done};
}

static void load(struct training *t, const char *step, bool with_data)
{
    struct checkpoint_state state = state_of(&t->trainer);
    struct checkpoint_found found;
    CHECK_STATUS(OK, checkpoint_load(step, &state, NULL, &found));
    CHECK_STATUS(OK, trainer_state_load(&t->trainer, found.train, true));
    if (with_data) CHECK_STATUS(OK, loader_load(t->loader, json_get(found.train, "data")));
    CHECK_STATUS(OK, trainer_sync_weights(&t->trainer));
    t->trainer.steps_done = found.step;
    json_free(found.state);
}

/* Opens a trainer at step 100 of the run; its loader skips the rows of the spike. */
static void straight_open(struct training *t, const struct spike_run *s)
{
    CHECK_STATUS(OK, training_open_rank(t, comm_self(), s->settings, s->num_settings));
    load(t, step_path(s, "step-100"), true);
    loader_skip(t->loader, (struct row_interval){200, 210});
}

/* Compares weights and moments with step 120 of the run. */
static void straight_close(struct training *t, const struct spike_run *s)
{
    struct training end;
    const struct optim *a = &end.trainer.optim, *b = &t->trainer.optim;
    CHECK_STATUS(OK, training_open_rank(&end, comm_self(), s->settings, s->num_settings));
    load(&end, step_path(s, "step-120"), false);
    size_t bytes = end.trainer.shard.elements * sizeof(float);
    CHECK(!memcmp(a->weights, b->weights, bytes));
    CHECK(!memcmp(a->exp_avg, b->exp_avg, bytes) && !memcmp(a->exp_avg_sq, b->exp_avg_sq, bytes));
    training_close(&end), training_close(t);
}

static void check_metrics(const struct spike_run *s)
{
    char *metrics = read_text(s, "metrics.jsonl"), key[40];
    for (int step = 1; step <= 120; step++) {
        snprintf(key, sizeof key, "{\"step\":%d,\"loss\"", step);
        CHECK(count(metrics, key) == 1);
    }
    CHECK(count(metrics, "rollback_from") == 1);
    CHECK(strstr(metrics, "{\"step\":100,\"rollback_from\":105,\"rows_skipped\":[200,209],"
                          "\"spike_loss\":"));
    free(metrics);
}

/* Compares with steps 101 to 120 after step 100, in which the loader skips the rows. */
TEST(spike_is_rolled_back_and_its_rows_are_skipped)
{
    struct spike_run s;
    struct training straight;
    SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback");
    CHECK_STATUS(OK, train(&s));
    check_metrics(&s);
    char *log = read_text(&s, "log.txt");
    CHECK(strstr(log, "step 104: the loss spikes: "));
    CHECK(strstr(
        log, "rolled back from step 105 to the checkpoint of step 100; skipping rows 200 to 209"));
    free(log);
    char *state = read_text(&s, "checkpoint/step-120/state.json");
    CHECK(strstr(state, "\"next_row\": 250, \"passed_over\": [[200,209]]"));
    CHECK(strstr(state, "\"rollbacks\": 1, \"last_spike\": 105, \"good_step\": 100"));
    free(state);

    straight_open(&straight, &s);
    for (int step = 101; step <= 120; step++) {
        struct step_result r;
        CHECK_STATUS(OK, trainer_step(&straight.trainer, straight.loader, &r));
        CHECK(r.loss < 3);
    }
    straight_close(&straight, &s);
    spike_run_close(&s);
}

/* Killed after the rollback: before the next save, which repeats the rollback, and after it. */
TEST(run_killed_after_a_rollback_ends_with_the_same_bits)
{
    static const char *const lost[][3] = {{"step-120"}, {"step-110", "step-120"}};
    struct spike_run s;
    SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback");
    CHECK_STATUS(OK, train(&s));
    const char *kept = test_path(s.folder, "kept");
    CHECK(!test_run((const char *const[]){"cp", "-r", step_path(&s, "step-120"), kept, NULL}, NULL,
                    NULL));
    for (int i = 0; i < 2; i++) {
        for (int k = 0; lost[i][k]; k++)
            CHECK_STATUS(OK, file_remove_tree(step_path(&s, lost[i][k])));
        arena_release(&s.machine.machine.queue->scratch);
        CHECK_STATUS(OK, train(&s));
        check_metrics(&s);
        runs_check_same_files(kept, step_path(&s, "step-120"), "model-");
        runs_check_same_files(kept, step_path(&s, "step-120"), "optimizer-");
        runs_check_same_files(kept, step_path(&s, "step-120"), "state.json");
    }
    spike_run_close(&s);
}

/* In one run, in one that is killed after its next save, and in one that rolls back again. */
TEST(bad_records_of_rows_that_a_rollback_skips_stay_listed)
{
    static const char *const lost[][3] = {{NULL}, {"step-120"}, {"step-110", "step-120"}};
    struct spike_run s;
    char *first = NULL;
    SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback", "data.on_bad_record=skip");
    write_corpus(test_path(s.folder, "corpus.jsonl"), true);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; lost[i][k]; k++)
            CHECK_STATUS(OK, file_remove_tree(step_path(&s, lost[i][k])));
        CHECK_STATUS(OK, train(&s));
        arena_release(&s.machine.machine.queue->scratch);
        char *list = read_text(&s, "bad_records.jsonl");
        if (!first) first = heap_strdup(list);
        CHECK(!strcmp(list, first));
        CHECK(count(list, "\n") == 3 && count(list, "{\"step\": 101, ") == 1);
        free(list);
    }
    free(first);
    spike_run_close(&s);
}

/* As if the rows of the spike had been rolled back, in one run and in one killed after step 110. */
TEST(rows_of_guard_skip_rows_are_skipped)
{
    struct spike_run rolled_back, s;
    SPIKE_RUN_OPEN(&rolled_back, "guard.on_spike=rollback");
    SPIKE_RUN_OPEN(&s, "guard.skip_rows=[[200, 203], [204, 209], [90000, 90001]]");
    CHECK_STATUS(OK, train(&rolled_back));
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, train(&s));
        runs_check_same_files(step_path(&rolled_back, "step-120"), step_path(&s, "step-120"),
                              "model-");
        runs_check_same_files(step_path(&rolled_back, "step-120"), step_path(&s, "step-120"),
                              "optimizer-");
        char *state = read_text(&s, "checkpoint/step-120/state.json");
        CHECK(strstr(state, "\"next_row\": 250, \"position\": 240, \"passed_over\": [[200,209]]"));
        free(state);
        char *metrics = read_text(&s, "metrics.jsonl");
        CHECK(count(metrics, "{\"step\":101,\"rows_skipped\":[200,209]}\n") == 1);
        CHECK(count(metrics, "rows_skipped") == 1);
        free(metrics);
        CHECK_STATUS(OK, file_remove_tree(step_path(&s, "step-120")));
        arena_release(&s.machine.machine.queue->scratch);
    }
    spike_run_close(&rolled_back), spike_run_close(&s);
}

/* Whether the data position of that checkpoint is after the run's or before it. */
TEST(spike_after_the_data_started_over_is_rolled_back_to_the_checkpoint_before)
{
    static const int begin[] = {120, 50};
    const char *excluded[] = {"dataloader"};
    for (int i = 0; i < 2; i++) {
        struct spike_run s;
        char line[100];
        SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback", "guard.skip_rows=[[200, 209]]");
        struct config *c = &s.config;
        c->training.steps = begin[i];
        CHECK_STATUS(OK, train(&s));
        struct option_list none = c->checkpoint.exclude_from_loading;
        c->checkpoint.exclude_from_loading = (struct option_list){excluded, 1};
        c->guard.skip_rows.count = 0;
        c->checkpoint.interval = 1000, c->training.steps = begin[i] + 120;
        arena_release(&s.machine.machine.queue->scratch);
        CHECK_STATUS(OK, train(&s));
        char *log = read_text(&s, "log.txt");
        snprintf(line, sizeof line,
                 "from step %d to the checkpoint of step %d; skipping rows 0 to 209",
                 begin[i] + 105, begin[i]);
        CHECK(strstr(log, line));
        free(log);
        c->checkpoint.exclude_from_loading = none;
        spike_run_close(&s);
    }
}

/* The next stage does not go back to before its begin. */
TEST(spike_at_the_end_of_a_data_stage_is_rolled_back_within_the_stage)
{
    struct spike_run s;
    SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback", "data.stage.0.at_step=104",
                   "data.stage.0.attn_mask_type=block_causal");
    CHECK_STATUS(OK, train(&s));
    char *log = read_text(&s, "log.txt");
    CHECK(strstr(
        log, "rolled back from step 104 to the checkpoint of step 100; skipping rows 200 to 207"));
    free(log);
    spike_run_close(&s);
}

TEST(checkpoint_before_a_spike_is_kept_until_the_spike_ends)
{
    struct spike_run s;
    SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback", "checkpoint.interval=1",
                   "checkpoint.keep_latest_k=2");
    CHECK_STATUS(OK, train(&s));
    char *log = read_text(&s, "log.txt");
    CHECK(strstr(log, "rolled back from step 105 to the checkpoint of step 102; skipping rows"));
    CHECK(!file_exists(step_path(&s, "step-102"))); /* later it is deleted like others */
    free(log);
    spike_run_close(&s);
}

/* The second start has a moving average, which the checkpoint of step 100 does not have. */
TEST(rollback_to_a_checkpoint_without_a_moving_average_starts_it_again)
{
    static const char *const settings[] = {"guard.on_spike=rollback",
                                           "guard.skip_rows=[[200, 209]]"};
    struct spike_run s[2];
    for (int i = 0; i < 2; i++) {
        SPIKE_RUN_OPEN(&s[i], settings[i], "lr_scheduler.total_steps=120");
        struct config *c = &s[i].config;
        c->training.steps = 100;
        CHECK_STATUS(OK, train(&s[i]));
        arena_release(&s[i].machine.machine.queue->scratch);
        c->training.steps = 120, c->optimizer.ema_decay = 0.9, c->checkpoint.interval = 1000;
        CHECK_STATUS(OK, train(&s[i]));
    }
    char *log = read_text(&s[0], "log.txt");
    CHECK(strstr(log, "to the checkpoint of step 100; skipping rows 200 to 209"));
    free(log);
    runs_check_same_files(step_path(&s[0], "step-120"), step_path(&s[1], "step-120"), "model-");
    runs_check_same_files(step_path(&s[0], "step-120"), step_path(&s[1], "step-120"), "ema-");
    spike_run_close(&s[0]), spike_run_close(&s[1]);
}

/* Also after a requeue, which resumes from step 103. */
TEST(run_does_not_roll_back_to_moments_that_it_left_out)
{
    const char *excluded[] = {"optimizer"};
    struct spike_run s;
    SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback", "lr_scheduler.total_steps=120");
    struct config *c = &s.config;
    struct option_list none = c->checkpoint.exclude_from_loading;
    c->training.steps = 100;
    CHECK_STATUS(OK, train(&s));
    arena_release(&s.machine.machine.queue->scratch);
    c->checkpoint.exclude_from_loading = (struct option_list){excluded, 1};
    c->checkpoint.interval = 1000;
    for (c->training.steps = 103; c->training.steps <= 120; c->training.steps += 17) {
        CHECK_STATUS(OK, train(&s));
        arena_release(&s.machine.machine.queue->scratch);
    }
    char *log = read_text(&s, "log.txt");
    CHECK(strstr(log, "there is no checkpoint to go back to; the run continues"));
    free(log);
    c->checkpoint.exclude_from_loading = none;
    spike_run_close(&s);
}

TEST(steps_of_guard_skip_steps_read_their_rows_and_change_nothing)
{
    struct spike_run s;
    struct training straight;
    SPIKE_RUN_OPEN(&s, "guard.skip_steps=[[101, 104], 105]");
    CHECK_STATUS(OK, train(&s));
    straight_open(&straight, &s);
    straight.trainer.steps_done = 105, straight.trainer.rows_done = 210;
    for (int step = 106; step <= 120; step++)
        CHECK_STATUS(OK,
                     trainer_step(&straight.trainer, straight.loader, &(struct step_result){0}));
    straight_close(&straight, &s);
    char *state = read_text(&s, "checkpoint/step-120/state.json");
    CHECK(strstr(state, "\"next_row\": 240, \"untrained\": [[200,209]]"));
    char *metrics = read_text(&s, "metrics.jsonl");
    CHECK(count(metrics, "{\"step\":105,\"rows_skipped\":[208,209]}\n") == 1);
    CHECK(count(metrics, "\"loss\"") == 115 && !strstr(metrics, "{\"step\":103,\"loss\""));
    free(state), free(metrics);
    spike_run_close(&s);
}

TEST(spike_is_only_a_warning_by_default_or_without_a_checkpoint)
{
    static const char *const settings[] = {"guard.on_spike=warn", "guard.on_spike=rollback"};
    for (int i = 0; i < 2; i++) {
        struct spike_run s;
        SPIKE_RUN_OPEN(&s, settings[i], "checkpoint.interval=1000");
        CHECK_STATUS(OK, train(&s));
        char *log = read_text(&s, "log.txt"), *metrics = read_text(&s, "metrics.jsonl");
        CHECK(count(log, "step 104: the loss spikes: ") == 1);
        CHECK(!strstr(log, "no checkpoint to go back to; the run continues") == (i == 0));
        CHECK(!strstr(metrics, "rollback"));
        free(log), free(metrics);
        spike_run_close(&s);
    }
}

TEST(too_many_rollbacks_end_the_run)
{
    struct spike_run s;
    SPIKE_RUN_OPEN(&s, "guard.on_spike=rollback", "guard.max_rollbacks=0");
    CHECK_STATUS(DIVERGED, train(&s));
    CHECK_MESSAGE("step 105: loss ");
    CHECK_MESSAGE("guard.max_rollbacks is reached");
    CHECK_MESSAGE("from the newest checkpoint, step 100, or from an earlier one, with "
                  "checkpoint.load_step=90");
    spike_run_close(&s);
}

struct poisoned_run {
    const char *corpus, *folder;
};

/* Checkpoints of steps 2, 3 and 4 of two ranks; one weight of rank 1 turns NaN before step 5. */
static enum status roll_back_rank(const struct comm *world, void *context)
{
    const struct poisoned_run *p = context;
    const char *settings[] = {TRAINING_OF_RANKS, p->corpus, SHARD(2), "checkpoint.enable=true",
                              "guard.nonfinite=rollback"};
    struct training t;
    struct trainer *r = &t.trainer;
    struct step_result s = {0};
    struct guard guard = {0};
    struct checkpointer *c;
    float *kept = NULL;
    TRY(training_open_rank(&t, world, settings, sizeof settings / sizeof *settings));
    const struct checkpointer_options o = {.folder = p->folder,
                                           .world = &r->machine.groups.of[GROUP_world]};
    TRY(checkpointer_open(&c, &o));
    size_t bytes = r->shard.elements * sizeof *kept;
    for (int step = 1; step <= 4; step++) {
        TRY(trainer_step(r, t.loader, &s));
        struct checkpoint_state state = state_of(r);
        struct json_writer w = {.text = &state.train};
        json_begin_object(&w, NULL, JSON_INLINE);
        trainer_state_save(r, &w);
        json_write_key(&w, "data");
        TRY(loader_gather_cursor(t.loader, &r->machine.groups.of[GROUP_data]));
        loader_save(t.loader, &w);
        json_end_object(&w);
        json_finish(&w);
        if (step > 1) TRY(checkpointer_save(c, &state));
        text_release(&state.train);
        if (step == 3) kept = heap(bytes), memcpy(kept, r->optim.weights, bytes);
    }
    if (world->rank == 1) r->optim.weights[r->shard.runs[r->shard.count / 2].at] = NAN;
    TRY(trainer_step(r, t.loader, &s));
    RANK_CHECK(s.skipped && guard_watch(&guard, &t.config.guard, &s, false, false));
    struct checkpoint_state state = state_of(r);
    struct rollback b = {.folder = p->folder,
                         .checkpointer = c,
                         .state = &state,
                         .trainer = r,
                         .loader = t.loader,
                         .guard = &guard,
                         .result = &s};
    TRY(rollback_run(&b));
    RANK_CHECK(b.to == 3 && r->steps_done == 3 && r->skips == 0 && guard.rollbacks == 1);
    RANK_CHECK(b.rows.begin == 24 && b.rows.end == 40 && loader_position(t.loader) == 40);
    RANK_CHECK(!memcmp(kept, r->optim.weights, bytes) && r->tokens_seen == 3 * 8 * 16);
    TRY(trainer_step(r, t.loader, &s));
    RANK_CHECK(!s.skipped && s.step == 4);
    TRY(checkpointer_close(c, false));
    free(kept);
    training_close(&t);
    return STATUS_OK;
}

TEST(ranks_roll_back_together_from_a_value_that_is_not_finite)
{
    char corpus[300];
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    struct poisoned_run p = {corpus, test_path(test_folder(), "checkpoint")};
    CHECK_STATUS(OK, ranks_run(2, roll_back_rank, &p));
    CHECK(file_exists(test_path(p.folder, "abandoned-3-1/step-4")));
    CHECK(!file_exists(test_path(p.folder, "step-4")) &&
          file_exists(test_path(p.folder, "step-3")));
}

/* A weight decay that multiplies weights by -1e6 per step: the state is not saved, the run ends and
 * says where it can resume. */
#define DIVERGE "optimizer.lr=1000 optimizer.weight_decay=1000 lr_scheduler.warmup_steps=0 "
TEST(diverged_run_is_not_saved_and_names_the_checkpoint_to_resume_from)
{
    struct text err = {0};
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "run");
    runs_write_corpus(corpus, 60000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=10 checkpoint.interval=5", &err) == 0);
    text_clear(&err);
    CHECK(runs_train(config, dump, DIVERGE "training.steps=30 checkpoint.interval=50", &err) == 80);
    CHECK(strstr(err.data, ": loss nan, gradient norm "));
    CHECK(strstr(err.data, "the first bad value is on rank 0: model.embed_tokens.weight: element"));
    CHECK(strstr(err.data, "from the newest checkpoint, step 10, or from an earlier one, with "
                           "checkpoint.load_step=5"));
    text_clear(&err);
    CHECK(runs_train(config, dump, DIVERGE "training.steps=20 checkpoint.interval=1", &err) == 80);
    CHECK(strstr(err.data, "cannot save the checkpoint of step 11: rank 0: tensor model."));
    CHECK(!file_exists(test_path(dump, "checkpoint/step-11")));
    text_clear(&err);
    CHECK(runs_train(config, dump, DIVERGE "training.steps=11 checkpoint.async_mode=async", &err) ==
          80);
    CHECK(strstr(err.data, "tensor model.") && strstr(err.data, "checkpoint.load_step=5"));
    CHECK(!file_exists(test_path(dump, "checkpoint/step-11")));
    text_clear(&err);
    CHECK(runs_train(config, test_path(folder, "other"), DIVERGE "guard.nonfinite=skip", &err) ==
          80);
    CHECK(strstr(err.data, "its update is skipped"));
    CHECK(strstr(err.data, "guard.max_skips reached"));
    CHECK(strstr(err.data, "no checkpoint was saved"));
    text_clear(&err);
    int code = runs_train(config, dump,
                          DIVERGE "training.steps=20 checkpoint.interval=1 "
                                  "guard.nonfinite=rollback guard.max_rollbacks=2",
                          &err);
    if (code != 80) fail_msg("exit code %d: %s", code, err.data);
    CHECK(strstr(err.data,
                 "rolled back from step 11 to the checkpoint of step 5; skipping rows 20 to 43"));
    CHECK(strstr(err.data, "guard.max_rollbacks is reached"));
    CHECK(file_exists(test_path(dump, "checkpoint/abandoned-5-1/step-10")));
    CHECK(strstr(err.data, "moved the checkpoints after step 5 to "));
    text_release(&err);
}

TEST(advice_is_appended_to_a_failure_that_stays_shared)
{
    const char *folder = test_folder();
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "step-7")));
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        status_fail(STATUS_DIVERGED, "x.c", 1, "step 9: loss nan");
        if (is_shared) status_mark_shared();
        CHECK_STATUS(DIVERGED, rollback_advise(folder, STATUS_DIVERGED));
        CHECK_MESSAGE("step 9: loss nan; resume with other settings");
        CHECK_MESSAGE("step 7, with checkpoint.load_step=7");
        CHECK(status_is_shared() == is_shared);
    }
}
