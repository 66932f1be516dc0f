// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "model/rig.h"

#include "parallel/pipeline.h"
#include "parallel/stages.h"

#include <pthread.h>

enum { MICROBATCHES = 6, MORE_MICROBATCHES = 8, MAX_CHUNKS = 3 };

/* A schedule, and the results of one rank with the whole model. */
struct comparison {
    struct schedule schedule;
    bool tied, forward_only;
    bool smaller; /* the pipeline is opened for more microbatches */
    struct rig *one;
    float *losses; /* of all microbatches, from the rank with the head */
    float *gradients;
    pthread_mutex_t lock;
};

static struct model_shape shape_of(const struct comparison *l)
{
    struct model_shape s = rig_shape();
    s.L = 7, s.tied = l->tied;
    return s;
}

/* The i-th microbatch is the batch with different labels. */
static void labels_of(const struct rig *r, int micro, int32_t *labels)
{
    int N = r->b.B * r->b.T, V = r->m.shape.V;
    for (int i = 0; i < N; i++)
        labels[i] = r->labels[i] < 0 ? r->labels[i] : (r->labels[i] + micro) % V;
}

static void find_stages(const struct comparison *l, int rank, struct stage *stages)
{
    const struct schedule *s = &l->schedule;
    int begin[64], all = s->pp * s->chunks;
    struct stages split = {
        .blocks = 7, .pp = s->pp, .chunks = s->chunks, .first_less = 1, .last_less = 1};
    BUG_IF(stages_split(&split, begin));
    for (int i = 0; i < s->chunks; i++) {
        int stage = schedule_stage(s, rank, i);
        stages[i] = (struct stage){begin[stage], begin[stage + 1], !stage, stage == all - 1};
    }
}

/* Copies from the whole model's flat buffer to that of some stages, or adds back. */
static void copy_stages(const struct model *whole, float *all, const struct model *m, float *here,
                        bool back)
{
    for (int i = 0; i < m->layout.num_tensors; i++) {
        const struct tensor_slot *t = &m->layout.tensors[i];
        float *there = all + layout_find(&whole->layout, t->id, t->layer)->offset;
        if (!back) memcpy(here + t->offset, there, t->elements * sizeof *here);
        for (size_t j = 0; j < t->elements && back; j++) there[j] += here[t->offset + j];
    }
}

static enum status run_rank(const struct comm *group, void *context)
{
    struct comparison *l = context;
    struct rig *one = l->one;
    struct stage stages[MAX_CHUNKS];
    struct model_shape shape = shape_of(l);
    struct rig r;
    struct microbatch microbatches[MICROBATCHES];
    size_t N = (size_t)one->b.B * (size_t)one->b.T;
    int32_t *labels = heap(MICROBATCHES * N * sizeof *labels);
    rig_open(&r, &shape, F32, one->b.B, one->b.T);
    model_release(&r.m);
    find_stages(l, group->rank, stages);
    struct model_part part = {stages, l->schedule.chunks, 1, 0};
    TRY(model_init_stages(&r.m, &shape, one->b.T, &part, &r.run));
    copy_stages(&one->m, one->weights, &r.m, r.weights, false);
    memset(r.gradients, 0, r.m.layout.elements * sizeof *r.gradients);
    struct pipeline p = {&r.m, group, stages, l->schedule, l->forward_only, NULL};
    bool has_loss = group->rank == group->size - 1;
    for (int i = 0; i < MICROBATCHES; i++) {
        microbatches[i] = r.b;
        microbatches[i].labels_BT = labels + (size_t)i * N;
        microbatches[i].loss_BT = has_loss ? l->losses + (size_t)i * N : NULL;
        microbatches[i].best_BT = NULL;
        labels_of(&r, i, labels + (size_t)i * N);
    }
    if (l->smaller) p.schedule.num_microbatches = MORE_MICROBATCHES;
    pipeline_open(&p);
    if (l->smaller) {
        pipeline_reserve(&p, MICROBATCHES);
        pipeline_set_microbatches(&p, MICROBATCHES);
    }
    RANK_CHECK(pipeline_has_loss(&p) == has_loss);
    r.queue->sizing = true;
    TRY(pipeline_run(&p, microbatches, &r.step));
    r.queue->sizing = false;
    size_t bytes = r.step.peak;
    TRY(arena_init(&r.step, bytes, NULL));
    for (int again = 0; again < 2; again++) { /* the first run must leave no state */
        memset(r.gradients, 0, r.m.layout.elements * sizeof *r.gradients);
        TRY(pipeline_run(&p, microbatches, &r.step));
        RANK_CHECK(r.step.used == 0 && r.step.peak == bytes);
    }
    pipeline_close(&p);
    pthread_mutex_lock(&l->lock);
    copy_stages(&one->m, l->gradients, &r.m, r.gradients, true);
    pthread_mutex_unlock(&l->lock);
    rig_close(&r);
    free(labels);
    return STATUS_OK;
}

/* Runs the microbatches through the whole model. */
static void train_alone(struct comparison *l, float *losses)
{
    struct rig *r = l->one;
    int N = r->b.B * r->b.T;
    int32_t labels[64];
    memset(r->gradients, 0, r->m.layout.elements * sizeof *r->gradients);
    r->b.labels_BT = labels;
    for (int i = 0; i < MICROBATCHES; i++) {
        labels_of(r, i, labels);
        r->b.loss_BT = losses + i * N;
        rig_run(r, l->forward_only ? single_stage_evaluate : single_stage_train);
    }
}

static void check_comparison(struct comparison l)
{
    struct rig one;
    const struct schedule s = l.schedule;
    const bool tied = l.tied;
    struct model_shape shape = shape_of(&l);
    l.one = &one;
    pthread_mutex_init(&l.lock, NULL);
    rig_open(&one, &shape, F32, 2, 9);
    size_t n = one.m.layout.elements, tokens = MICROBATCHES * 18;
    float *losses = heap(tokens * sizeof *losses);
    l.losses = heap(tokens * sizeof *losses);
    l.gradients = heap(n * sizeof *l.gradients);
    train_alone(&l, losses);
    CHECK_STATUS(OK, ranks_run(s.pp, run_rank, &l));
    CHECK(!memcmp(losses, l.losses, tokens * sizeof *losses));
    /* A tied embedding's gradient is the sum of two stages', added here in another order. */
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)l.gradients[i] - (double)one.gradients[i]);
        CHECK(tied ? off < 1e-5 : off == 0);
    }
    free(losses), free(l.losses), free(l.gradients);
    rig_close(&one);
}

TEST(every_schedule_matches_one_rank_bit_for_bit)
{
    static const struct schedule schedules[] = {
        {SCHEDULE_GPipe, 2, 1, MICROBATCHES},
        {SCHEDULE_GPipe, 4, 1, MICROBATCHES},
        {SCHEDULE_1F1B, 1, 1, MICROBATCHES},
        {SCHEDULE_1F1B, 2, 1, MICROBATCHES},
        {SCHEDULE_1F1B, 3, 1, MICROBATCHES},
        {SCHEDULE_1F1B, 8, 1, MICROBATCHES},
        {SCHEDULE_Interleaved1F1B, 2, 2, MICROBATCHES},
        {SCHEDULE_Interleaved1F1B, 3, 3, MICROBATCHES},
        {SCHEDULE_Interleaved1F1B, 4, 2, MICROBATCHES},
        {SCHEDULE_Interleaved1F1B, 2, 3, MICROBATCHES},
    };
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (int tied = 0; tied < 2; tied++) {
            check_comparison((struct comparison){.schedule = schedules[i], .tied = tied});
            check_comparison(
                (struct comparison){.schedule = schedules[i], .tied = tied, .forward_only = true});
        }
}

TEST(a_pipeline_runs_fewer_microbatches_than_it_was_opened_for)
{
    static const struct schedule schedules[] = {
        {SCHEDULE_GPipe, 2, 1, MICROBATCHES},
        {SCHEDULE_1F1B, 1, 1, MICROBATCHES},
        {SCHEDULE_1F1B, 3, 1, MICROBATCHES},
        {SCHEDULE_Interleaved1F1B, 3, 3, MICROBATCHES},
        {SCHEDULE_Interleaved1F1B, 4, 2, MICROBATCHES}, /* 6 need more buffers than 8 */
    };
    struct schedule more = schedules[4];
    more.num_microbatches = MORE_MICROBATCHES;
    CHECK(schedule_send_buffers(&more) < schedule_send_buffers(&schedules[4]));
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        check_comparison((struct comparison){.schedule = schedules[i], .smaller = true});
}

/* A simulated rank counts what it would receive. */
TEST(simulated_rank_counts_its_messages)
{
    struct comparison l = {.schedule = {SCHEDULE_1F1B, 4, 1, MICROBATCHES}};
    struct model_shape shape = shape_of(&l);
    struct rig r;
    struct microbatch microbatches[MICROBATCHES];
    rig_open(&r, &shape, BF16, 2, 9);
    r.queue->sizing = true;
    for (int i = 0; i < MICROBATCHES; i++) microbatches[i] = r.b;
    for (int rank = 0; rank < 4; rank++) {
        struct stage stage;
        struct comm_counts counts = {0};
        struct comm group = {.rank = rank, .size = 4, .counts = &counts};
        find_stages(&l, rank, &stage);
        struct pipeline p = {&r.m, &group, &stage, l.schedule, false, NULL};
        pipeline_open(&p);
        r.step = (struct arena){0};
        CHECK_STATUS(OK, pipeline_run(&p, microbatches, &r.step));
        pipeline_close(&p);
        /* An activation from the stage before, a gradient from the next one. */
        uint64_t neighbors = rank == 0 || rank == 3 ? 1 : 2;
        CHECK(counts.calls[TRANSFER_receive] == neighbors * MICROBATCHES);
        CHECK(counts.bytes[TRANSFER_receive] ==
              neighbors * MICROBATCHES * 2 * 9 * 16 * sizeof(bf16));
        CHECK(counts.calls[TRANSFER_send] == neighbors * MICROBATCHES);
    }
    rig_close(&r);
}

/* Counts what has been received, or posted to be, when the first unit opens. */
struct first_open {
    struct unit_provider base;
    struct comm_counts counts;
    bool has_opened;
    uint64_t receives;
};

static enum status open_unit(struct unit_provider *provider, int unit, unsigned use,
                             struct unit_buffers *buffers)
{
    struct first_open *f = (struct first_open *)provider;
    (void)unit, (void)use, (void)buffers;
    if (!f->has_opened) f->receives = f->counts.calls[TRANSFER_receive];
    f->has_opened = true;
    return STATUS_OK;
}

static enum status close_unit(struct unit_provider *provider, int unit, unsigned use)
{
    (void)provider, (void)unit, (void)use;
    return STATUS_OK;
}

/* The receives of the second of four stages before it computes. */
static uint64_t receives_before_computing(int num_microbatches)
{
    struct comparison l = {.schedule = {SCHEDULE_1F1B, 4, 1, num_microbatches}};
    struct model_shape shape = shape_of(&l);
    struct first_open first = {.base = {open_unit, close_unit}};
    struct comm group = {.rank = 1, .size = 4, .counts = &first.counts};
    struct microbatch microbatches[MICROBATCHES];
    struct stage stage;
    struct rig r;
    rig_open(&r, &shape, BF16, 2, 9);
    r.queue->sizing = true;
    r.m.units = &first.base;
    for (int i = 0; i < num_microbatches; i++) microbatches[i] = r.b;
    find_stages(&l, group.rank, &stage);
    struct pipeline p = {&r.m, &group, &stage, l.schedule, false, NULL};
    pipeline_open(&p);
    r.step = (struct arena){0};
    CHECK_STATUS(OK, pipeline_run(&p, microbatches, &r.step));
    pipeline_close(&p);
    r.m.units = NULL;
    rig_close(&r);
    return first.receives;
}

/* A stage with one or two microbatches must not wait for what may depend on it. */
TEST(the_next_input_is_received_early_with_more_than_two_microbatches)
{
    CHECK(receives_before_computing(1) == 1);
    CHECK(receives_before_computing(2) == 1);
    CHECK(receives_before_computing(3) == 2);
}

/* Counts sends that are started and not waited for. */
struct sends {
    struct comm_observer base;
    int pending, most;
};

static void count_start(struct comm_observer *o, const struct comm *c, const struct transfer *t,
                        size_t bytes)
{
    struct sends *s = (struct sends *)o;
    (void)c, (void)bytes;
    s->pending += t->kind == TRANSFER_send;
    if (s->pending > s->most) s->most = s->pending;
}

static void count_wait(struct comm_observer *o, const struct transfer *t)
{
    ((struct sends *)o)->pending -= t->kind == TRANSFER_send;
}

/* The most of the first of two stages. */
static int most_pending_sends(enum schedule_kind kind)
{
    struct comparison l = {.schedule = {kind, 2, 1, MICROBATCHES}};
    struct model_shape shape = shape_of(&l);
    struct sends sends = {.base = {count_start, count_wait}};
    struct comm_counts counts = {.observer = &sends.base};
    struct comm group = {.rank = 0, .size = 2, .counts = &counts};
    struct microbatch microbatches[MICROBATCHES];
    struct stage stage;
    struct rig r;
    rig_open(&r, &shape, BF16, 2, 9);
    r.queue->sizing = true;
    for (int i = 0; i < MICROBATCHES; i++) microbatches[i] = r.b;
    find_stages(&l, group.rank, &stage);
    struct pipeline p = {&r.m, &group, &stage, l.schedule, false, NULL};
    pipeline_open(&p);
    r.step = (struct arena){0};
    CHECK_STATUS(OK, pipeline_run(&p, microbatches, &r.step));
    CHECK(!sends.pending);
    pipeline_close(&p);
    rig_close(&r);
    return sends.most;
}

TEST(gpipe_sends_an_output_while_the_next_microbatch_computes)
{
    CHECK(most_pending_sends(SCHEDULE_1F1B) == 1);
    CHECK(most_pending_sends(SCHEDULE_GPipe) == 2);
}
