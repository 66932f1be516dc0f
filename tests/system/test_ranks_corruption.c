/* test_ranks_corruption.c -- a rank whose memory or results are wrong is found and named; ranks are
 * threads. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "ops/linear.h"
#include "ops/update.h"
#include "system/device_runs.h"
#include "system/layouts.h"
#include "system/runs.h"
#include "train/training.h"

enum { MAX_RANKS = 8, SETTINGS = 48 };

enum fault { FAULT_STATE, FAULT_NORM, FAULT_LINEAR, FAULT_SUM };

struct corruption {
    const char *settings[SETTINGS];
    int num_settings, victim;
    enum fault fault;
    int64_t step; /* before which the fault occurs */
    int64_t failed_after[MAX_RANKS];
    enum status status[MAX_RANKS];
    char message[MAX_RANKS][STATUS_TEXT];
};

/* A backend whose next linear layer or cast has a wrong result, on the thread that sets it. */
static _Thread_local int linears_until_fault, casts_until_fault;

static enum status faulty_linear(const struct linear *a, const struct linear_fwd *io,
                                 struct queue *queue)
{
    TRY(ops_cpu_reference.linear_forward(a, io, queue));
    if (linears_until_fault && !--linears_until_fault) test_flip_bit(io->y_NF, 23);
    return STATUS_OK;
}

static enum status faulty_cast(const struct cast *a, const struct cast_io *io, struct queue *queue)
{
    TRY(ops_cpu_reference.cast(a, io, queue));
    if (casts_until_fault && !--casts_until_fault) test_flip_bit(io->y_n, 23);
    return STATUS_OK;
}

static void cause_fault(struct trainer *t, enum fault fault)
{
    const struct replicas *r = &t->replicas[REPLICATED_UNSLICED];
    size_t i = 0;
    switch (fault) {
    case FAULT_STATE: test_flip_bit(t->optim.exp_avg, 32 * (t->shard.runs[0].at + 3) + 22); break;
    case FAULT_NORM:
        while (!replicas_include(r, &t->shard.runs[i])) i++;
        test_flip_bit(t->optim.weights, 32 * t->shard.runs[i].at + 22);
        break;
    case FAULT_LINEAR: linears_until_fault = 3; break;
    case FAULT_SUM: casts_until_fault = 2; break;
    }
}

static enum status train_rank(const struct comm *world, void *context)
{
    struct corruption *c = context;
    struct training r;
    struct step_result s;
    struct ops ops = ops_cpu_reference;
    enum status st = STATUS_OK;
    ops.linear_forward = faulty_linear, ops.cast = faulty_cast;
    linears_until_fault = casts_until_fault = 0;
    TRY(training_open_rank(&r, world, c->settings, c->num_settings));
    r.trainer.model.ops = r.trainer.fsdp.ops = &ops;
    for (int64_t step = 1; !st && step <= 12; step++) {
        if (step == c->step && world->rank == c->victim) cause_fault(&r.trainer, c->fault);
        st = trainer_step(&r.trainer, r.loader, &s);
    }
    c->status[world->rank] = st;
    c->failed_after[world->rank] = r.trainer.steps_done;
    if (st) snprintf(c->message[world->rank], STATUS_TEXT, "%s", status_message());
    training_close(&r);
    return STATUS_OK;
}

static void run(struct corruption *c, int ranks, const char *corpus, const char *const *layout)
{
    static const char *const tiny[] = {TRAINING_OF_RANKS, "training.steps=50"};
    char data[256];
    snprintf(data, sizeof data, "training.dataset_path=%s", corpus);
    c->num_settings = 0;
    for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++)
        c->settings[c->num_settings++] = tiny[i];
    while (*layout) c->settings[c->num_settings++] = *layout++;
    c->settings[c->num_settings++] = data;
    CHECK_STATUS(OK, ranks_run(ranks, train_rank, c));
}

static void check_holds(const char *message, const char *part)
{
    if (!strstr(message, part)) print_error("\"%s\" is not in: %s\n", part, message);
    CHECK(strstr(message, part));
}

struct corruption_row {
    int ranks;
    const char *settings[5];
    enum fault fault;
    int victim;
    int64_t step;         /* before which it occurs */
    int64_t found_after;  /* steps done when the run ends */
    const char *named[3]; /* in the message */
    int other;            /* another suspect, or -1; the lower one reports both */
};

#define HASH(n)   "guard.hash_every=" #n
#define REPLAY(n) "guard.replay_every=" #n

static const struct corruption_row rows[] = {
    /* Between two hashes: replicas differ at the next one. */
    {2,
     {HASH(4), SHARD(1), COPIES(2)},
     FAULT_STATE,
     1,
     2,
     3,
     {"after step 4 exp_avg differ among ranks", "rank 0 on ", ", rank 1 on "},
     0},
    {4,
     {HASH(4), SHARD(1), COPIES(4)},
     FAULT_STATE,
     2,
     6,
     7,
     {"after step 8 exp_avg differ from those of the other 3 ranks", "): rank 2 on ",
      "step 4 or earlier"},
     -1},
    {4,
     {HASH(4), SHARD(2), COPIES(2)},
     FAULT_STATE,
     3,
     2,
     3,
     {"(replicate)", ": rank 1 on ", ", rank 3 on "},
     1},
    {8,
     {HASH(4), SHARD(2), COPIES(4), "training.global_batch_size=8"},
     FAULT_STATE,
     5,
     2,
     3,
     {"the other 3 ranks", "): rank 5 on ", "step 0 or earlier"},
     -1},
    {4,
     {HASH(4), TP(4)},
     FAULT_NORM,
     3,
     2,
     3,
     {"weights differ from those of the other 3 ranks", "): rank 3 on ", "(tp)"},
     -1},
    /* Right after a hash: the rank finds it itself. */
    {2,
     {HASH(4), SHARD(2)},
     FAULT_STATE,
     1,
     5,
     4,
     {"rank 1 on ", "exp_avg changed in memory after the update of step 4", "of step 5"},
     -1},
    {2, {HASH(4), PP(2)}, FAULT_STATE, 0, 9, 8, {"rank 0 on ", "step 7 or earlier", "exp_avg"}, -1},
    /* Computation. */
    {2,
     {REPLAY(3), SHARD(1), COPIES(2)},
     FAULT_LINEAR,
     1,
     6,
     5,
     {"rank 1 on ", "the replay of step 6 gave other losses and gradients", "step 3 or earlier"},
     -1},
    {4,
     {REPLAY(3), SHARD(2), COPIES(2)},
     FAULT_LINEAR,
     2,
     3,
     2,
     {"rank 2 on ", "the replay of step 3", "step 2 or earlier"},
     -1},
    {4,
     {REPLAY(3), SHARD(4), ZERO1},
     FAULT_LINEAR,
     0,
     3,
     2,
     {"rank 0 on ", "of step 3", "fault"},
     -1},
    {2,
     {REPLAY(3), TP(2)},
     FAULT_LINEAR,
     1,
     3,
     2,
     {"rank 0 on ", "of step 3 gave other ", "and so did ranks 1"},
     0},
    {2,
     {REPLAY(3), SHARD(2)},
     FAULT_SUM,
     1,
     3,
     2,
     {"rank 1 on ", "other sums of gradients over ranks", "the network or a reduction"},
     -1},
};

TEST(corrupt_ranks_are_named_on_every_rank)
{
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct corruption_row *row = &rows[i];
        struct corruption c = {.victim = row->victim, .fault = row->fault, .step = row->step};
        char elsewhere[32];
        run(&c, row->ranks, corpus, row->settings);
        int first = row->other >= 0 && row->other < row->victim ? row->other : row->victim;
        snprintf(elsewhere, sizeof elsewhere, "rank %d failed", first);
        for (int r = 0; r < row->ranks; r++) {
            if (c.status[r] != STATUS_DEVICE)
                print_error("row %zu, rank %d: %s\n", i, r, c.message[r]);
            CHECK(c.status[r] == STATUS_DEVICE && c.failed_after[r] == row->found_after);
            if (r != first) check_holds(c.message[r], elsewhere);
            for (int k = 0; r == first && k < 3; k++) check_holds(c.message[r], row->named[k]);
        }
    }
}

TEST(checked_runs_have_the_bits_of_unchecked_ones_on_every_layout)
{
    static const struct {
        enum device_run how;
        int ranks;
        const char *settings[5];
    } layouts[] = {
        {ON_HOST, 1, {HALF}},
        {OVER_STAGED, 1, {HALF, "optimizer.master_weights=split"}},
        {ON_HOST, 4, {SHARD(2), COPIES(2)}},
        {OVER_STAGED, 2, {SHARD(2), HALF}},
        {ON_HOST, 4, {SHARD(2), TP(2), "model.tie_embeddings=true"}},
        {ON_HOST, 4, {TP(4), HALF, "optimizer.state_dtype=bfloat16"}},
        {ON_HOST, 4, {PP(2), CP(2), "model.tie_embeddings=true", "model.n_layers=6"}},
        {ON_HOST, 4, {SHARD(2), COPIES(2), "training.determinism=elastic", ZERO1}},
    };
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *plain = test_folder(), *checked = test_folder();
        const char *all[16] = {HASH(1), REPLAY(1), "metrics.log_freq=1"};
        int n = 3;
        for (int k = 0; layouts[i].settings[k]; k++) all[n++] = layouts[i].settings[k];
        device_run_train(layouts[i].how, layouts[i].ranks, all + 2, corpus, plain);
        device_run_train(layouts[i].how, layouts[i].ranks, all, corpus, checked);
        runs_check_same_metrics(plain, checked);
        runs_check_same_files(test_path(plain, "checkpoint/step-6"),
                              test_path(checked, "checkpoint/step-6"), ".safetensors");
    }
}
