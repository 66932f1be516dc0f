// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "model/rig.h"
#include "test.h"

#include "model/decode.h"
#include "model/shard.h"
#include "ops/context.h"
#include "parallel/plan.h"
#include "tensor/device.h"

TEST(single_device_crossings_do_nothing)
{
    const struct parallel_plan *p = plan_single_device();
    float x[6] = {1, 2, 3, 4, 5, 6}, before[6];
    memcpy(before, x, sizeof x);
    for (enum boundary at = 0; at < BOUNDARY_COUNT; at++)
        for (enum direction way = 0; way < DIRECTION_COUNT; way++) {
            struct crossing c = {.x = x, .rows = 2, .columns = 3, .dtype = F32};
            CHECK_STATUS(OK, p->cross(p, at, way, &c, NULL));
            CHECK(c.x == x && c.rows == 2 && c.columns == 3);
        }
    CHECK(!memcmp(x, before, sizeof x));
}

enum { COLUMNS = 3 };

/* Counts how often a crossing did its overlapped work, and whether that was during a transfer. */
struct overlap {
    struct comm_observer observer;
    bool in_flight;
    int count, count_in_flight;
};

static void on_start(struct comm_observer *o, const struct comm *c, const struct transfer *t,
                     size_t bytes)
{
    (void)c, (void)bytes;
    ((struct overlap *)o)->in_flight = t->begins_first;
}

static void on_wait(struct comm_observer *o, const struct transfer *t)
{
    (void)t;
    ((struct overlap *)o)->in_flight = false;
}

static enum status do_work(void *context)
{
    struct overlap *o = context;
    o->count++, o->count_in_flight += o->in_flight;
    return STATUS_OK;
}

/* Crosses every boundary with overlapped work, in a sizing pass, too. */
static enum status check_overlap(const struct comm *group, void *context)
{
    struct overlap o = {.observer = {on_start, on_wait}};
    struct group_plan p;
    struct queue *queue;
    float x[2 * 4 * COLUMNS] = {0};
    (void)context;
    TRY(cpu_queue_open(&queue, 1, 1 << 16));
    plan_init_tensor(&p, group, true);
    group->counts->observer = &o.observer;
    for (int i = 0; i < 2 * LOSS; i++) {
        struct crossing c = {x, 2 * group->size, COLUMNS, F32, do_work, &o, false};
        queue->sizing = i >= LOSS;
        TRY(p.plan.cross(&p.plan, (enum boundary)(i % LOSS), BACKWARD, &c, queue));
    }
    group->counts->observer = NULL;
    RANK_CHECK(o.count == 2 * LOSS && o.count_in_flight == LOSS && !o.in_flight);
    cpu_queue_close(queue);
    return STATUS_OK;
}

TEST(tensor_parallel_crossings_overlap_work)
{
    struct overlap o = {0};
    struct crossing c = {.overlapped = do_work, .work = &o};
    const struct parallel_plan *alone = plan_single_device();
    CHECK_STATUS(OK, alone->cross(alone, MLP_IN, BACKWARD, &c, NULL));
    CHECK(o.count == 1);
    CHECK_STATUS(OK, ranks_run(4, check_overlap, NULL));
}

/* A group whose transfers fail to start, or start and fail. */
struct faulty {
    bool starts;
    int num_waits;
};

static enum status fail_or_start(const struct comm *c, struct transfer *t)
{
    (void)t;
    if (!((struct faulty *)c->group)->starts) FAIL(COMM, "the start failed");
    return STATUS_OK;
}

static enum status fail_to_complete(struct transfer *t)
{
    ((struct faulty *)t->comm->group)->num_waits++;
    FAIL(COMM, "the transfer failed");
}

static enum status fail_work(void *work)
{
    ++*(int *)work;
    FAIL(SHAPE, "the work failed");
}

TEST(a_crossing_that_fails_waits_for_its_transfer_and_returns_the_first_failure)
{
    static const struct transport transport = {.start = fail_or_start, .wait = fail_to_complete};
    for (int starts = 0; starts < 2; starts++)
        for (int works = 0; works < 2; works++) {
            struct faulty f = {.starts = starts};
            struct comm group = {.size = 2, .transport = &transport, .group = &f};
            struct group_plan p;
            struct queue *queue;
            int count = 0;
            float x[4 * COLUMNS] = {0};
            struct crossing c = {x, 4, COLUMNS, F32, works ? fail_work : NULL, &count, false};
            CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 1 << 16));
            plan_init_tensor(&p, &group, true);
            enum status st = p.plan.cross(&p.plan, MLP_IN, BACKWARD, &c, queue);
            CHECK(st == (starts && works ? STATUS_SHAPE : STATUS_COMM));
            CHECK_MESSAGE(!starts ? "the start failed"
                          : works ? "the work failed"
                                  : "the transfer failed");
            CHECK(f.num_waits == starts && count == (starts && works));
            CHECK(queue->scratch.peak > 0 && queue->scratch.used == 0);
            cpu_queue_close(queue);
        }
}

/* Into a block rows are all-gathered; out of it they are reduce-scattered. */
static enum status check_crossings(const struct comm *group, void *context)
{
    const bool *sequence_parallel = context;
    struct group_plan p;
    struct queue *queue;
    size_t rows = 2 * (size_t)group->size, n = rows * COLUMNS, each = n / (size_t)group->size;
    float *x = heap(n * sizeof *x);
    TRY(cpu_queue_open(&queue, 1, 1 << 16));
    plan_init_tensor(&p, group, *sequence_parallel);
    RANK_CHECK(p.plan.parts == group->size && p.plan.part == group->rank);
    for (enum boundary at = EMBED_OUT; at <= LOSS; at++)
        for (enum direction way = FORWARD; way <= (*sequence_parallel ? BACKWARD : FORWARD);
             way++) {
            bool leaves = at == EMBED_OUT || at == ATTN_OUT || at == MLP_OUT;
            bool sum = at != LOSS && leaves == (way == FORWARD),
                 moves = *sequence_parallel || at == LOSS;
            struct crossing c = {.x = x, .rows = (int)rows, .columns = COLUMNS, .dtype = F32};
            size_t own = (size_t)group->rank;
            for (size_t i = 0; i < n; i++) x[i] = (float)(i + 100 * own);
            TRY(p.plan.cross(&p.plan, at, way, &c, queue));
            for (size_t i = 0; i < n; i++) {
                size_t owner = i / each;
                float want = (float)(i + 100 * owner), all = 0;
                for (int r = 0; r < group->size; r++) all += (float)(i + 100 * (size_t)r);
                if (sum && (owner == own || !*sequence_parallel)) RANK_CHECK(x[i] == all);
                if (!sum && moves) RANK_CHECK(x[i] == want);
                if (!sum && !moves) RANK_CHECK(x[i] == (float)(i + 100 * own));
            }
        }
    cpu_queue_close(queue);
    free(x);
    return STATUS_OK;
}

TEST(tensor_parallel_crossings_gather_and_reduce)
{
    for (int size = 2; size <= 4; size++)
        for (int divided = 0; divided < 2; divided++)
            CHECK_STATUS(OK, ranks_run(size, check_crossings, &(bool){divided}));
}

static enum status fail_to_wait(struct queue *queue)
{
    (void)queue;
    BUG("the host waits for the device");
}

static enum status check_amaxes(const struct comm *group, void *context)
{
    const struct device device = {.wait = fail_to_wait};
    struct group_plan p;
    struct queue *queue;
    float amaxes[4] = {-1, -1, -1, -1};
    (void)context;
    TRY(cpu_queue_open(&queue, 1, 1 << 16));
    queue->device = &device;
    plan_init_tensor(&p, group, true);
    amaxes[group->rank] = 10 + (float)group->rank;
    TRY(p.plan.gather_amaxes(&p.plan, amaxes, queue));
    for (int r = 0; r < 4; r++) RANK_CHECK(amaxes[r] == (r < group->size ? 10 + (float)r : -1));
    queue->device = NULL;
    cpu_queue_close(queue);
    return STATUS_OK;
}

TEST(tensor_parallel_ranks_gather_amaxes_without_waiting_for_the_device)
{
    for (int size = 2; size <= 4; size++) CHECK_STATUS(OK, ranks_run(size, check_amaxes, NULL));
}

/* The plan names this rank's part of each row, and replaces attention by the ring. */
static enum status check_contexts(const struct comm *group, void *context)
{
    struct group_plan p;
    struct comm alone = {.size = 1};
    (void)context;
    plan_init_tensor(&p, &alone, true);
    RANK_CHECK(!p.plan.contexts && !p.plan.attend && !p.plan.attend_backward);
    plan_add_context(&p, &alone);
    RANK_CHECK(!p.plan.contexts && !p.plan.attend && !p.plan.attend_backward);
    plan_add_context(&p, group);
    RANK_CHECK(p.plan.contexts == group->size && p.plan.context == group->rank);
    RANK_CHECK(p.plan.attend && p.plan.attend_backward && p.plan.parts == 1);
    return STATUS_OK;
}

TEST(context_parallel_plan_replaces_attention)
{
    CHECK_STATUS(OK, ranks_run(3, check_contexts, NULL));
}

struct long_row {
    struct model_shape shape;
    bool causal;
};

/* Compares the losses of a model that has a part of each row with those of whole rows. */
static enum status evaluate(const struct comm *group, void *context)
{
    enum { ROWS = 2, HERE = 6 };
    const struct long_row *l = context;
    int T = HERE * group->size;
    struct context part = {group->size, group->rank, l->causal};
    struct token_run runs[MAX_TOKEN_RUNS];
    int num_runs = context_runs(&part, HERE, runs);
    struct rig whole, r;
    struct group_plan p;
    rig_open(&whole, &l->shape, F32, ROWS, T);
    rig_open(&r, &l->shape, F32, ROWS, T);
    whole.b.causal = r.b.causal = l->causal, r.b.T = HERE;
    plan_init_tensor(&p, &(struct comm){.size = 1}, true);
    plan_add_context(&p, group);
    r.m.plan = &p.plan;
    memcpy(r.weights, whole.weights, r.m.layout.elements * sizeof *r.weights);
    rig_cast(&r);
    int32_t ids[ROWS * HERE], labels[ROWS * HERE];
    for (int b = 0; b < ROWS; b++)
        for (int i = 0; i < num_runs; i++)
            for (int k = 0; k < runs[i].count; k++) {
                int to = b * HERE + runs[i].at + k, from = b * T + runs[i].first + k;
                ids[to] = whole.b.ids_BT[from], labels[to] = whole.b.labels_BT[from];
            }
    r.b.ids_BT = ids, r.b.labels_BT = labels;
    TRY(arena_init(&whole.step, 1 << 20, NULL));
    TRY(arena_init(&r.step, 1 << 20, NULL));
    TRY(single_stage_evaluate(&whole.m, &whole.b, &whole.step));
    TRY(single_stage_evaluate(&r.m, &r.b, &r.step));
    for (int b = 0; b < ROWS; b++)
        for (int i = 0; i < num_runs; i++)
            for (int k = 0; k < runs[i].count; k++)
                RANK_CHECK(fabsf(r.b.loss_BT[b * HERE + runs[i].at + k] -
                                 whole.b.loss_BT[b * T + runs[i].first + k]) < 1e-4f);
    r.b.T = HERE - 1; /* zigzag requires an even length, and the RoPE tables limit it */
    enum status odd = single_stage_evaluate(&r.m, &r.b, &r.step);
    RANK_CHECK(!l->causal || odd == STATUS_SHAPE);
    r.b.T = HERE + 2;
    RANK_CHECK(single_stage_evaluate(&r.m, &r.b, &r.step) == STATUS_SHAPE);
    rig_close(&whole), rig_close(&r);
    return STATUS_OK;
}

TEST(context_parallel_losses_match_whole_rows)
{
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int causal = 0; causal < 2; causal++) {
            struct long_row l = {rig_shape(), causal};
            CHECK_STATUS(OK, ranks_run(ranks, evaluate, &l));
        }
}

/* Copies the weights of one tensor-parallel slice. */
static void copy_slice(const struct rig *whole, struct rig *r, int slice, int num_slices)
{
    struct shard p;
    shard_init_sliced(&p, &r->m.layout, &whole->m.layout,
                      (struct shard_position){0, 1, slice, num_slices});
    for (size_t i = 0; i < p.count; i++)
        memcpy(r->weights + p.runs[i].at,
               whole->weights + whole->m.layout.tensors[p.runs[i].tensor].offset + p.runs[i].first,
               p.runs[i].count * sizeof *r->weights);
    shard_release(&p);
    rig_cast(r);
}

/* Compares the decoding of a sliced model with that of the whole model. */
static enum status decode(const struct comm *group, void *context)
{
    enum { B = 2, T = 5 };
    const struct model_shape *s = context;
    struct rig whole, r;
    struct group_plan p;
    struct model_shape slice = model_shape_slice(s, group->rank, group->size);
    int32_t ids[B * T];
    float *want = heap(B * (size_t)s->V * sizeof *want),
          *got = heap(B * (size_t)s->V * sizeof *got);
    rig_open(&whole, s, F32, 1, 16);
    rig_open(&r, &slice, F32, 1, 16);
    plan_init_tensor(&p, group, false);
    r.m.plan = &p.plan;
    copy_slice(&whole, &r, group->rank, group->size);
    for (int i = 0; i < B * T; i++) ids[i] = i * 7 % s->V;
    struct rig *rigs[] = {&whole, &r};
    struct kv_cache caches[2];
    for (int i = 0; i < 2; i++) {
        TRY(arena_init(&rigs[i]->step, 1 << 20, NULL));
        TRY(decode_init_cache(&caches[i], &rigs[i]->m, B, 2 * T, &rigs[i]->run));
    }
    for (int round = 0; round < 3; round++) { /* alike, one token and several, one of each */
        int first = round == 0 ? T : 1, second = round == 2 ? 1 : T - 1;
        const struct decode_row rows[B] = {{0, first, ids}, {1, second, ids + T}};
        struct decode_io one = {rows, B, want}, sliced = {rows, B, got};
        TRY(decode_next(&whole.m, &caches[0], &one, &whole.step));
        TRY(decode_next(&r.m, &caches[1], &sliced, &r.step));
        for (int i = 0; i < B * s->V; i++) RANK_CHECK(fabsf(got[i] - want[i]) < 1e-4f);
    }
    free(want), free(got);
    rig_close(&whole), rig_close(&r);
    return STATUS_OK;
}

TEST(tensor_parallel_decoding_matches_the_whole_model)
{
    struct model_shape s = rig_shape(), tied = s;
    s.V = tied.V = 40, tied.tied = true;
    CHECK_STATUS(OK, ranks_run(2, decode, &s));
    CHECK_STATUS(OK, ranks_run(2, decode, &tied));
    s.V = 39;
    CHECK_STATUS(OK, ranks_run(2, decode, &s));
    s.V = 41, s.vocab_multiple = 8;
    CHECK_STATUS(OK, ranks_run(1, decode, &s));
    CHECK_STATUS(OK, ranks_run(2, decode, &s));
}
