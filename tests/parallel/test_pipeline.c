// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "model/rig.h"

#include "parallel/pipeline.h"
#include "parallel/stages.h"

#include <pthread.h>

enum { MICROS = 6, MOST_CHUNKS = 3 };

/* A schedule, and what one rank with the whole model makes of the same micro-batches. */
struct lesson {
    struct schedule schedule;
    bool tied, forward_only;
    struct rig *one;
    float *losses; /* of all micro-batches, by whoever has the head */
    float *gradients;
    pthread_mutex_t lock;
};

static struct model_shape shape_of(const struct lesson *l)
{
    struct model_shape s = rig_shape();
    s.L = 7, s.tied = l->tied;
    return s;
}

/* The i-th micro-batch is the batch with other labels. */
static void labels_of(const struct rig *r, int micro, int32_t *labels)
{
    int N = r->b.B * r->b.T, V = r->m.shape.V;
    for (int i = 0; i < N; i++)
        labels[i] = r->labels[i] < 0 ? r->labels[i] : (r->labels[i] + micro) % V;
}

static void find_stages(const struct lesson *l, int rank, struct stage *stages)
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

/* From the whole model's flat buffer to that of some stages, or added back. */
static void move(const struct model *whole, float *all, const struct model *m, float *here,
                 bool back)
{
    for (int i = 0; i < m->layout.num_tensors; i++) {
        const struct tensor_place *t = &m->layout.tensors[i];
        float *there = all + layout_find(&whole->layout, t->id, t->layer)->offset;
        if (!back) memcpy(here + t->offset, there, t->elements * sizeof *here);
        for (size_t j = 0; j < t->elements && back; j++) there[j] += here[t->offset + j];
    }
}

static enum status take_part(const struct comm *group, void *context)
{
    struct lesson *l = context;
    struct rig *one = l->one;
    struct stage stages[MOST_CHUNKS];
    struct model_shape shape = shape_of(l);
    struct rig r;
    struct micro_batch micros[MICROS];
    size_t N = (size_t)one->b.B * (size_t)one->b.T;
    int32_t *labels = heap(MICROS * N * sizeof *labels);
    rig_open(&r, &shape, F32, one->b.B, one->b.T);
    model_release(&r.m);
    find_stages(l, group->rank, stages);
    TRY(model_init_stages(&r.m, &shape, stages, l->schedule.chunks, one->b.T, 1, &r.run));
    move(&one->m, one->weights, &r.m, r.weights, false);
    memset(r.gradients, 0, r.m.layout.elements * sizeof *r.gradients);
    struct pipeline p = {&r.m, group, stages, l->schedule, l->forward_only, NULL};
    bool has_loss = group->rank == group->size - 1;
    for (int i = 0; i < MICROS; i++) {
        micros[i] = r.b;
        micros[i].labels_BT = labels + (size_t)i * N;
        micros[i].loss_BT = has_loss ? l->losses + (size_t)i * N : NULL;
        micros[i].best_BT = NULL;
        labels_of(&r, i, labels + (size_t)i * N);
    }
    pipeline_open(&p);
    RANK_CHECK(pipeline_has_loss(&p) == has_loss);
    r.on->measuring = true;
    TRY(pipeline_run(&p, micros, &r.step));
    r.on->measuring = false;
    size_t bytes = r.step.peak;
    TRY(arena_init(&r.step, bytes, NULL));
    for (int again = 0; again < 2; again++) { /* nothing is left from the first time */
        memset(r.gradients, 0, r.m.layout.elements * sizeof *r.gradients);
        TRY(pipeline_run(&p, micros, &r.step));
        RANK_CHECK(r.step.used == 0 && r.step.peak == bytes);
    }
    pipeline_close(&p);
    pthread_mutex_lock(&l->lock);
    move(&one->m, l->gradients, &r.m, r.gradients, true);
    pthread_mutex_unlock(&l->lock);
    rig_close(&r);
    free(labels);
    return STATUS_OK;
}

/* What the whole model makes of the micro-batches, one after the other. */
static void train_alone(struct lesson *l, float *losses)
{
    struct rig *r = l->one;
    int N = r->b.B * r->b.T;
    int32_t labels[64];
    memset(r->gradients, 0, r->m.layout.elements * sizeof *r->gradients);
    r->b.labels_BT = labels;
    for (int i = 0; i < MICROS; i++) {
        labels_of(r, i, labels);
        r->b.loss_BT = losses + i * N;
        rig_run(r, l->forward_only ? model_evaluate : model_train);
    }
}

static void check_schedule(struct schedule s, bool tied, bool forward_only)
{
    struct rig one;
    struct lesson l = {.schedule = s, .tied = tied, .forward_only = forward_only, .one = &one};
    struct model_shape shape = shape_of(&l);
    pthread_mutex_init(&l.lock, NULL);
    rig_open(&one, &shape, F32, 2, 9);
    size_t n = one.m.layout.elements, tokens = MICROS * 18;
    float *losses = heap(tokens * sizeof *losses);
    l.losses = heap(tokens * sizeof *losses);
    l.gradients = heap(n * sizeof *l.gradients);
    train_alone(&l, losses);
    CHECK_STATUS(OK, ranks_run(s.pp, take_part, &l));
    CHECK(!memcmp(losses, l.losses, tokens * sizeof *losses));
    /* The two parts of a tied embedding's gradient are added up at the end here. */
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)l.gradients[i] - (double)one.gradients[i]);
        CHECK(tied ? off < 1e-5 : off == 0);
    }
    free(losses), free(l.losses), free(l.gradients);
    rig_close(&one);
}

TEST(every_schedule_has_the_bits_of_one_rank)
{
    static const struct schedule schedules[] = {
        {SCHEDULE_gpipe, 2, 1, MICROS},       {SCHEDULE_gpipe, 4, 1, MICROS},
        {SCHEDULE_one_ahead, 1, 1, MICROS},   {SCHEDULE_one_ahead, 2, 1, MICROS},
        {SCHEDULE_one_ahead, 3, 1, MICROS},   {SCHEDULE_one_ahead, 8, 1, MICROS},
        {SCHEDULE_interleaved, 2, 2, MICROS}, {SCHEDULE_interleaved, 3, 3, MICROS},
        {SCHEDULE_interleaved, 4, 2, MICROS}, {SCHEDULE_interleaved, 2, 3, MICROS},
    };
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (int tied = 0; tied < 2; tied++) {
            check_schedule(schedules[i], tied, false);
            check_schedule(schedules[i], tied, true);
        }
}

/* A rank that only plans counts what it would receive. */
TEST(what_a_stage_receives_is_counted_without_any_other_rank)
{
    struct lesson l = {.schedule = {SCHEDULE_one_ahead, 4, 1, MICROS}};
    struct model_shape shape = shape_of(&l);
    struct rig r;
    struct micro_batch micros[MICROS];
    rig_open(&r, &shape, BF16, 2, 9);
    r.on->measuring = true;
    for (int i = 0; i < MICROS; i++) micros[i] = r.b;
    for (int rank = 0; rank < 4; rank++) {
        struct stage stage;
        struct comm_counts counts = {0};
        struct comm group = {.rank = rank, .size = 4, .counts = &counts};
        find_stages(&l, rank, &stage);
        struct pipeline p = {&r.m, &group, &stage, l.schedule, false, NULL};
        pipeline_open(&p);
        r.step = (struct arena){0};
        CHECK_STATUS(OK, pipeline_run(&p, micros, &r.step));
        pipeline_close(&p);
        /* An activation from the stage before, a gradient from the one behind. */
        uint64_t neighbours = rank == 0 || rank == 3 ? 1 : 2;
        CHECK(counts.calls[TRANSFER_receive] == neighbours * MICROS);
        CHECK(counts.bytes[TRANSFER_receive] == neighbours * MICROS * 2 * 9 * 16 * sizeof(bf16));
        CHECK(counts.calls[TRANSFER_send] == neighbours * MICROS);
    }
    rig_close(&r);
}
