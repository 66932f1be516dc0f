// SPDX-License-Identifier: Apache-2.0
#include "train/nonfinite.h"

#include "comm/ranks.h"
#include "model/value_check.h"
#include "system/layouts.h"
#include "system/runs.h"
#include "train/training.h"

#include <stdlib.h>

enum poison { IN_WEIGHT, IN_EXP_AVG, IN_EXP_AVG_SQ, IN_COPY, IN_LOSS, IN_GRADIENT, NOWHERE };

struct injection {
    const char *const *layout; /* settings */
    const char *corpus, *nonfinite;
    enum poison where;
    int rank;                  /* that gets the bad value */
    char expected[300];        /* written by that rank */
    char message[STATUS_TEXT]; /* of rank 0 */
    enum status status;
};

/* A tensor in the middle of this rank's shard: writes what the message must have. */
static size_t choose(const struct trainer *t, struct injection *in, double value)
{
    static const enum value_kind kinds[] = {VALUE_WEIGHT, VALUE_EXP_AVG, VALUE_EXP_AVG_SQ,
                                            VALUE_WEIGHT, VALUE_WEIGHT,  VALUE_GRADIENT};
    const struct shard *shard = in->where == IN_EXP_AVG_SQ ? t->optim.exp_avg_sq_shard : &t->shard;
    const struct shard_run *p = &shard->runs[shard->count / 2];
    size_t at = p->count / 3;
    struct text what = {0};
    value_check_describe(&(struct bad_element){.kind = kinds[in->where],
                                               .tensor = &t->whole.tensors[p->tensor],
                                               .element = p->first + at,
                                               .value = value},
                         &what);
    snprintf(in->expected, sizeof in->expected, "on rank %d: %s%s", in->rank,
             in->where == IN_COPY ? "bfloat16 copy of " : "", what.data);
    text_release(&what);
    return p->at + at;
}

static void inject(struct trainer *t, struct injection *in)
{
    double value = in->where == IN_EXP_AVG_SQ ? -1 : in->where == IN_GRADIENT ? INFINITY : NAN;
    int B = t->batch.B, row = B - 1, readers = trainer_readers(&t->machine.mesh);
    size_t at = choose(t, in, value);
    if (in->where == IN_WEIGHT) t->optim.weights[at] = (float)value;
    if (in->where == IN_EXP_AVG) ((float *)t->optim.exp_avg)[at] = (float)value;
    if (in->where == IN_EXP_AVG_SQ) ((float *)t->optim.exp_avg_sq)[at] = (float)value;
    if (in->where == IN_COPY) ((bf16 *)t->optim.copy)[at] = bf16_from_f32((float)value);
    if (in->where == IN_GRADIENT) ((float *)t->gradients)[at] = (float)value;
    if (in->where != IN_LOSS) return;
    t->loss_BT[(size_t)row * (size_t)t->local.T + 3] = (float)value;
    snprintf(in->expected, sizeof in->expected, "on rank %d: the loss of row %d is nan", in->rank,
             8 + row * readers + t->machine.groups.of[GROUP_data].rank);
}

/* Two steps, the second of which has a bad weight, or leaves other bad values behind. */
static enum status run_rank(const struct comm *world, void *context)
{
    struct injection *in = context;
    const char *settings[40] = {TRAINING_OF_RANKS, in->corpus, in->nonfinite};
    struct training t;
    struct step_result r = {0};
    int n = 0;
    while (settings[n]) n++;
    for (int i = 0; in->layout[i]; i++) settings[n++] = in->layout[i];
    TRY(training_open_rank(&t, world, settings, n));
    bool is_poisoned = world->rank == in->rank && in->where != NOWHERE;
    TRY(trainer_step(&t.trainer, t.loader, &r));
    if (is_poisoned && in->where == IN_WEIGHT) inject(&t.trainer, in);
    TRY(trainer_step(&t.trainer, t.loader, &r));
    RANK_CHECK(r.skipped == (in->where == IN_WEIGHT));
    if (is_poisoned && in->where != IN_WEIGHT) inject(&t.trainer, in);
    enum status st = nonfinite_handle(&t.trainer, t.loader, &r);
    if (world->rank == 0) {
        in->status = st;
        snprintf(in->message, sizeof in->message, "%s", st ? status_message() : "");
    } else {
        RANK_CHECK(st == in->status || st == STATUS_DIVERGED);
        RANK_CHECK(!st || status_is_remote());
    }
    training_close(&t);
    return STATUS_OK;
}

#define LAYOUT(...) ((const char *const[]){__VA_ARGS__, NULL})

static void run(struct injection *in, int ranks, const char *const *layout)
{
    char corpus[300];
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    in->corpus = corpus, in->layout = layout;
    if (!in->nonfinite) in->nonfinite = "guard.nonfinite=stop";
    CHECK_STATUS(OK, ranks_run(ranks, run_rank, in));
}

static void check_named(const struct injection *in, const char *part)
{
    if (!strstr(in->message, part)) fail_msg("\"%s\" is not in: %s", part, in->message);
}

TEST(first_bad_value_is_named_with_rank_tensor_and_element)
{
    const struct {
        int ranks;
        const char *const *layout;
    } layouts[] = {{1, LAYOUT(NULL)},
                   {2, LAYOUT(SHARD(2))},
                   {2, LAYOUT(SHARD(2), "optimizer.name=Muon")},
                   {2, LAYOUT(TP(2))},
                   {2, LAYOUT(PP(2), "parallelism.pipeline_parallel_microbatch_size=1",
                              "training.local_batch_size=8")},
                   {4, LAYOUT(SHARD(2), TP(2))}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (enum poison where = 0; where < NOWHERE; where++) {
            struct injection in = {.where = where, .rank = layouts[i].ranks - 1};
            if (where == IN_COPY) continue;
            run(&in, layouts[i].ranks, layouts[i].layout);
            CHECK(in.status == STATUS_DIVERGED);
            check_named(&in, "step 2 (rows 8 to 15): loss ");
            check_named(&in, in.expected);
            check_named(&in, "(guard.nonfinite = \"stop\")");
        }
}

TEST(bad_copy_of_a_good_weight_is_named)
{
    struct injection in = {.where = IN_COPY};
    run(&in, 2, LAYOUT(SHARD(2), HALF));
    check_named(&in, in.expected);
}

TEST(step_without_a_bad_value_says_so)
{
    struct injection in = {.where = NOWHERE};
    run(&in, 1, LAYOUT(NULL));
    check_named(&in, "all weights, moments, losses and gradients are finite");
}

TEST(skip_and_rollback_do_not_stop_the_run)
{
    struct injection in = {.where = IN_WEIGHT, .nonfinite = "guard.nonfinite=skip"};
    run(&in, 2, LAYOUT(SHARD(2)));
    CHECK(!in.status);
    in.nonfinite = "guard.nonfinite=rollback";
    run(&in, 2, LAYOUT(SHARD(2), "checkpoint.enable=true"));
    CHECK(!in.status);
    in.nonfinite = "guard.nonfinite=skip";
    run(&in, 1, LAYOUT("guard.max_skips=0"));
    CHECK(in.status == STATUS_DIVERGED);
    check_named(&in, "guard.max_skips reached");
}
