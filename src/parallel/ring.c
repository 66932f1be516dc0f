// SPDX-License-Identifier: Apache-2.0
#include "parallel/ring.h"

#include "ops/context.h"
#include "ops/update.h"
#include "tensor/element.h"
#include "tensor/queue.h"

struct ring {
    const struct comm *group;
    const struct ops *ops;
    const struct attention *attention;
    struct queue *queue;
    size_t N, Q, P;                     /* tokens, and elements of their queries and keys */
    const int32_t *start_BT, *end_BT;   /* positions in whole rows */
    int32_t *key_begin_BT, *key_end_BT; /* key range of each query, among the current keys */
    void *keys[2]; /* [N, 2P] keys and values: the current ones, and those being received */
    size_t mark;   /* in the queue's scratch */
};

static void ring_open(struct ring *r, const int32_t *start_BT, const int32_t *end_BT)
{
    const struct attention *a = r->attention;
    struct arena *scratch = &r->queue->scratch;
    BUG_IF(a->S != a->T || a->keys != ALL_KEYS || r->group->size < 2);
    r->N = (size_t)a->B * (size_t)a->T;
    r->Q = (size_t)a->H * (size_t)a->K, r->P = (size_t)a->G * (size_t)a->K;
    r->start_BT = start_BT, r->end_BT = end_BT;
    r->mark = arena_mark(scratch);
    r->key_begin_BT = arena_alloc(scratch, r->N, sizeof *r->key_begin_BT);
    r->key_end_BT = arena_alloc(scratch, r->N, sizeof *r->key_end_BT);
    for (int i = 0; i < 2; i++)
        r->keys[i] = arena_alloc(scratch, r->N * 2 * r->P, dtype_bytes(a->dtype));
}

static void ring_close(struct ring *r) { arena_reset(&r->queue->scratch, r->mark); }

/* The rank whose keys this rank holds after `step` shifts. */
static int owner_of(const struct ring *r, int step)
{
    int size = r->group->size;
    return (r->group->rank - step % size + size) % size;
}

/* The part of each row that a rank has. */
static struct context context_of(const struct ring *r, int rank)
{
    return (struct context){r->group->size, rank, r->attention->causal};
}

/* The key range of each local query, among the owner's keys. */
static enum status find_key_ranges(const struct ring *r, int owner)
{
    const struct attention *a = r->attention;
    struct context_bounds bounds = {
        a->B, a->T, context_of(r, r->group->rank), context_of(r, owner), a->causal, a->window};
    struct context_bounds_io io = {r->start_BT, r->end_BT, r->key_begin_BT, r->key_end_BT};
    return context_bounds(r->ops, &bounds, &io, r->queue);
}

static bool skips_transfers(const struct ring *r)
{
    return !comm_transfers(r->group, r->queue->sizing);
}

static enum status start_shift(const struct ring *r, struct transfer *t)
{
    if (!skips_transfers(r)) TRY(comm_start(r->group, t));
    return STATUS_OK;
}

static enum status wait_shift(const struct ring *r, struct transfer *t)
{
    double begin = trace_begin(r->queue->trace);
    if (!skips_transfers(r)) TRY(comm_wait(t));
    trace_end(r->queue->trace, transfer_name(t->kind), begin);
    return STATUS_OK;
}

/* Starts to send the current keys to the next rank, and to receive the next ones. */
static enum status shift_keys(const struct ring *r, struct transfer *keys, int step)
{
    *keys = (struct transfer){.kind = TRANSFER_shift,
                              .dtype = r->attention->dtype,
                              .count = r->N * 2 * r->P,
                              .x = r->keys[step % 2],
                              .own = r->keys[(step + 1) % 2]};
    TRY(start_shift(r, keys));
    return STATUS_OK;
}

/* Packs this rank's keys and values as [N, 2P]. */
static enum status pack(const struct ring *r, const void *k, const void *v, void *to)
{
    enum dtype dtype = r->attention->dtype;
    struct cast rows = {.n = r->P,
                        .rows = r->N,
                        .from = dtype,
                        .to = dtype,
                        .from_stride = r->attention->kv_stride,
                        .to_stride = 2 * r->P};
    TRY(cast(r->ops, &rows, &(struct cast_io){k, to}, r->queue));
    TRY(cast(r->ops, &rows, &(struct cast_io){v, element(to, r->P, dtype)}, r->queue));
    return STATUS_OK;
}

/* Whether a window hides keys of a row. */
static bool has_window(const struct ring *r)
{
    return r->attention->window && r->attention->window < r->attention->T * r->group->size;
}

/* The share of a rank's keys that a query sees.  Zigzag: causal on average half of each rank's; of
 * a row of n tokens those of a window w are w (1 - w / 2n). */
static float visible_share(const struct ring *r)
{
    const struct attention *a = r->attention;
    float n = (float)a->T * (float)r->group->size, w = (float)a->window;
    return !a->causal ? 1 : has_window(r) ? w / n * (1 - w / (2 * n)) : 0.5f;
}

/* Describes the visible query-key pairs of this part as a rectangle, if they are one.  With zigzag,
 * all queries come after the first half of an earlier rank's keys and before the second; of the
 * queries the first half comes before all keys of a later rank, and the second after them. */
static void describe_pairs(const struct ring *r, int owner, struct attention *a)
{
    int rank = r->group->rank;
    if (r->start_BT || has_window(r)) return;
    a->rectangle.num_keys = a->S;
    if (!r->attention->causal) return;
    a->causal = owner == rank; /* local tokens are in sequence order */
    if (owner < rank) a->rectangle.num_keys = a->S / 2;
    if (owner > rank) a->rectangle.first_query = a->T / 2;
}

/* Attention to the keys of one rank. */
static struct attention partial_attention(const struct ring *r, int owner, enum attention_keys keys)
{
    struct attention a = *r->attention;
    a.kv_stride = 2 * r->P, a.causal = false, a.keys = keys;
    a.visible = visible_share(r);
    a.window = 0; /* the key ranges have it */
    describe_pairs(r, owner, &a);
    return a;
}

static enum status attend_to_keys(const struct ring *r, const struct attention_fwd *io, int step,
                                  void *out)
{
    int owner = owner_of(r, step);
    struct attention a = partial_attention(r, owner, step ? MORE_KEYS : FIRST_KEYS);
    struct attention_fwd part = {.q_BTHK = io->q_BTHK,
                                 .k_BSGK = r->keys[step % 2],
                                 .v_BSGK = element(r->keys[step % 2], r->P, a.dtype),
                                 .start_BT = r->key_begin_BT,
                                 .end_BT = r->key_end_BT,
                                 .out_BTHK = out,
                                 .lse_BHT = io->lse_BHT};
    TRY(find_key_ranges(r, owner));
    TRY(attention_forward(r->ops, &a, &part, r->queue));
    return STATUS_OK;
}

enum status ring_forward(const struct comm *group, const struct ops *ops,
                         const struct attention *attention, const struct attention_fwd *io,
                         struct queue *queue)
{
    struct ring r = {.group = group, .ops = ops, .attention = attention, .queue = queue};
    struct transfer keys;
    ring_open(&r, io->start_BT, io->end_BT);
    void *out = io->out_BTHK;
    if (attention->dtype != F32) out = arena_alloc(&queue->scratch, r.N * r.Q, sizeof(float));
    TRY(pack(&r, io->k_BSGK, io->v_BSGK, r.keys[0]));
    for (int step = 0; step < group->size; step++) {
        bool last = step == group->size - 1;
        if (!last) TRY(shift_keys(&r, &keys, step));
        TRY(attend_to_keys(&r, io, step, out));
        if (!last) TRY(wait_shift(&r, &keys));
    }
    struct cast all = {.n = r.N * r.Q, .to = attention->dtype};
    if (attention->dtype != F32) TRY(cast(ops, &all, &(struct cast_io){out, io->out_BTHK}, queue));
    ring_close(&r);
    return STATUS_OK;
}

/* --- backward --- */

enum { NUM_SUMS = 3 }; /* of gradients: being computed, being received, being sent */

/* Gradient accumulators, f32. */
struct ring_gradients {
    float *keys[NUM_SUMS]; /* [N, 2P] */
    float *queries;        /* [N, Q] */
};

static struct ring_gradients alloc_gradients(const struct ring *r)
{
    struct ring_gradients s;
    for (int i = 0; i < NUM_SUMS; i++)
        s.keys[i] = arena_alloc(&r->queue->scratch, r->N * 2 * r->P, sizeof(float));
    s.queries = arena_alloc(&r->queue->scratch, r->N * r->Q, sizeof(float));
    return s;
}

static enum status backward_of_keys(const struct ring *r, const struct attention_bwd *io, int step,
                                    const struct ring_gradients *s)
{
    int owner = owner_of(r, step);
    struct attention a = partial_attention(r, owner, step > 1 ? MORE_KEYS : FIRST_KEYS);
    struct attention_bwd part = *io;
    part.k_BSGK = r->keys[step % 2];
    part.v_BSGK = element(r->keys[step % 2], r->P, a.dtype);
    part.start_BT = r->key_begin_BT, part.end_BT = r->key_end_BT;
    part.dq_BTHK = s->queries;
    part.dk_BSGK = s->keys[step % NUM_SUMS], part.dv_BSGK = element(part.dk_BSGK, r->P, F32);
    TRY(find_key_ranges(r, owner));
    TRY(attention_backward(r->ops, &a, &part, r->queue));
    return STATUS_OK;
}

/* Starts to send the sum of the previous step to the next rank, and to receive what the ranks
 * before have summed for the current keys. */
static enum status shift_gradients(const struct ring *r, struct transfer *sums, int step,
                                   const struct ring_gradients *s)
{
    *sums = (struct transfer){.kind = TRANSFER_shift,
                              .dtype = F32,
                              .count = r->N * 2 * r->P,
                              .x = s->keys[(step - 1) % NUM_SUMS],
                              .own = s->keys[(step + 1) % NUM_SUMS]};
    TRY(start_shift(r, sums));
    return STATUS_OK;
}

static enum status add_received(const struct ring *r, struct transfer *sums, int step,
                                const struct ring_gradients *s)
{
    struct cast add = {.n = sums->count, .accumulate = true};
    TRY(wait_shift(r, sums));
    TRY(cast(r->ops, &add, &(struct cast_io){sums->own, s->keys[step % NUM_SUMS]}, r->queue));
    return STATUS_OK;
}

/* Casts the gradients and stores them in the fused rows. */
static enum status store_gradients(const struct ring *r, const struct attention_bwd *io,
                                   const struct ring_gradients *s)
{
    const float *dkeys = s->keys[r->group->size % NUM_SUMS];
    struct cast rows = {.n = r->Q,
                        .rows = r->N,
                        .to = r->attention->dtype,
                        .from_stride = r->Q,
                        .to_stride = r->attention->q_stride};
    TRY(cast(r->ops, &rows, &(struct cast_io){s->queries, io->dq_BTHK}, r->queue));
    rows.n = r->P, rows.from_stride = 2 * r->P, rows.to_stride = r->attention->kv_stride;
    TRY(cast(r->ops, &rows, &(struct cast_io){dkeys, io->dk_BSGK}, r->queue));
    TRY(cast(r->ops, &rows, &(struct cast_io){element(dkeys, r->P, F32), io->dv_BSGK}, r->queue));
    return STATUS_OK;
}

enum status ring_backward(const struct comm *group, const struct ops *ops,
                          const struct attention *attention, const struct attention_bwd *io,
                          struct queue *queue)
{
    struct ring r = {.group = group, .ops = ops, .attention = attention, .queue = queue};
    struct transfer keys, gradients;
    int size = group->size;
    ring_open(&r, io->start_BT, io->end_BT);
    struct ring_gradients s = alloc_gradients(&r);
    TRY(pack(&r, io->k_BSGK, io->v_BSGK, r.keys[0]));
    TRY(shift_keys(&r, &keys, 0));
    TRY(wait_shift(&r, &keys));
    for (int step = 1; step <= size; step++) {
        bool shifts = step < size - 1;
        if (shifts) TRY(shift_keys(&r, &keys, step));
        if (step == size) TRY(pack(&r, io->k_BSGK, io->v_BSGK, r.keys[step % 2]));
        if (step > 1) TRY(shift_gradients(&r, &gradients, step, &s));
        TRY(backward_of_keys(&r, io, step, &s));
        if (shifts) TRY(wait_shift(&r, &keys));
        if (step > 1) TRY(add_received(&r, &gradients, step, &s));
    }
    TRY(store_gradients(&r, io, &s));
    ring_close(&r);
    return STATUS_OK;
}
