/* sharding.h -- a model's state sharded over ranks in many ways, for tests. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/rig.h"
#include "checkpoint/staging.h"
#include "comm/ranks.h"

/* How the state is sharded. */
enum sharding {
    SHARDING_FSDP,       /* a shard of every unit per rank */
    SHARDING_REPLICATED, /* replicated on every rank */
    SHARDING_HSDP,       /* shards of half as many ranks, each on two */
    SHARDING_COLUMNS,    /* column ranges of the matrices, as with tensor parallelism; vectors
                          * replicated */
    SHARDING_UNEVEN,     /* overlapping runs of odd lengths; rank 0 holds no matrix */
    SHARDING_COUNT
};

/* One rank's shard. */
struct rank_shard {
    struct layout layout;
    struct shard shard, exp_avg_sq_shard; /* the latter is empty without first_moment_only */
    uint32_t first_moment_only;           /* what the second moments lack */
    float *buffers[3];                    /* weights, moments */
};

static inline const struct shard *rank_shard_of(const struct rank_shard *s, int b)
{
    return b == 2 && s->first_moment_only ? &s->exp_avg_sq_shard : &s->shard;
}

/* Large enough that every file has several chunks. */
static inline struct model_shape sharding_shape(bool tied)
{
    struct model_shape s = small_shape();
    s.V = 1500, s.D = 128, s.K = 32, s.F = 600;
    s.tied = tied;
    return s;
}

/* Element i of a tensor in a buffer; nearly all values are different. */
static inline float sharding_value(int buffer, int tensor, size_t i)
{
    uint64_t x = ((uint64_t)buffer << 40 ^ (uint64_t)tensor << 32 ^ i) * 0x9E3779B97F4A7C15u;
    float value = (float)(int32_t)(x >> 32) * 0x1p-34f;
    return buffer == 2 ? fabsf(value) : value;
}

static inline void rank_shard_add(struct shard *p, int tensor, size_t first, size_t count)
{
    bool is_full = !(p->count & (p->count - 1)); /* the capacity is the next power of two */
    if (is_full) p->runs = heap_grow(p->runs, p->count ? 2 * p->count : 1, sizeof *p->runs);
    p->runs[p->count++] = (struct shard_run){tensor, first, count, p->elements};
    p->elements += count + 3; /* padding between runs */
}

static inline void rank_shard_add_columns(struct shard *p, const struct layout *l, int rank,
                                          int size)
{
    for (int i = l->num_tensors - 1; i >= 0; i--) {
        const struct tensor_slot *t = &l->tensors[i];
        size_t columns = (size_t)t->columns, first = columns * (size_t)rank / (size_t)size;
        size_t count = columns * ((size_t)rank + 1) / (size_t)size - first;
        if (columns == 1) rank_shard_add(p, i, 0, t->elements);
        for (size_t row = 0; columns > 1 && row < (size_t)t->rows; row++)
            rank_shard_add(p, i, row * columns + first, count);
    }
}

static inline void rank_shard_add_uneven(struct shard *p, const struct layout *l, int rank,
                                         int size)
{
    for (int i = 0; i < l->num_tensors; i++) {
        size_t n = l->tensors[i].elements, others = (size_t)size - 1, at = (size_t)rank - 1;
        if (l->tensors[i].columns == 1 && rank == i % size) rank_shard_add(p, i, 0, n);
        if (l->tensors[i].columns == 1 || rank == 0) continue;
        size_t begin = n * at / others, end = n * (at + 1) / others + 1001;
        if (end > n) end = n;
        rank_shard_add(p, i, begin + 77, end - begin - 77);
        rank_shard_add(p, i, begin, 77);
    }
}

/* Frees the second moments of these kinds of weights. */
static inline void rank_shard_omit(struct rank_shard *s, uint32_t kinds)
{
    shard_release(&s->exp_avg_sq_shard);
    shard_init_without(&s->exp_avg_sq_shard, &s->shard, &s->layout, kinds);
    s->first_moment_only = kinds;
    free(s->buffers[2]);
    s->buffers[2] = heap(rank_shard_of(s, 2)->elements * sizeof(float));
}

static inline void rank_shard_open(struct rank_shard *s, enum sharding how, bool tied, int rank,
                                   int size)
{
    struct model_shape shape = sharding_shape(tied);
    bool parts = how == SHARDING_FSDP || how == SHARDING_HSDP;
    int num_parts = how == SHARDING_FSDP ? size : how == SHARDING_HSDP ? (size + 1) / 2 : 1;
    *s = (struct rank_shard){0};
    layout_init(&s->layout, &shape, num_parts);
    if (how == SHARDING_COLUMNS)
        rank_shard_add_columns(&s->shard, &s->layout, rank, size);
    else if (how == SHARDING_UNEVEN && size > 1)
        rank_shard_add_uneven(&s->shard, &s->layout, rank, size);
    else
        shard_init(&s->shard, &s->layout, parts ? rank % num_parts : 0, num_parts);
    for (int b = 0; b < 2; b++) s->buffers[b] = heap(s->shard.elements * sizeof(float));
    rank_shard_omit(s, 0);
}

static inline void rank_shard_fill(struct rank_shard *s)
{
    for (int b = 0; b < 3; b++)
        for (size_t i = 0; i < rank_shard_of(s, b)->count; i++) {
            const struct shard_run *p = &rank_shard_of(s, b)->runs[i];
            for (size_t j = 0; j < p->count; j++)
                s->buffers[b][p->at + j] = sharding_value(b, p->tensor, p->first + j);
        }
}

/* Whether buffer b holds every element of the shard. */
static inline bool rank_shard_is_full(const struct rank_shard *s, int b)
{
    for (size_t i = 0; i < rank_shard_of(s, b)->count; i++) {
        const struct shard_run *p = &rank_shard_of(s, b)->runs[i];
        for (size_t j = 0; j < p->count; j++) {
            union {
                float value;
                uint32_t bits;
            } want = {sharding_value(b, p->tensor, p->first + j)}, got = {s->buffers[b][p->at + j]};
            if (got.bits != want.bits) return false;
        }
    }
    return true;
}

static inline void rank_shard_release(struct rank_shard *s)
{
    for (int b = 0; b < 3; b++) free(s->buffers[b]);
    shard_release(&s->shard), shard_release(&s->exp_avg_sq_shard);
    layout_release(&s->layout);
}

/* The state of this shard; `shape` and `world` are borrowed. */
static inline struct checkpoint_state rank_shard_state(struct rank_shard *s,
                                                       const struct model_shape *shape,
                                                       const struct comm *world, int64_t step)
{
    return (struct checkpoint_state){.shape = shape,
                                     .layout = &s->layout,
                                     .shard = &s->shard,
                                     .world = world,
                                     .weights = s->buffers[0],
                                     .exp_avg = s->buffers[1],
                                     .exp_avg_sq = s->buffers[2],
                                     .exp_avg_sq_shard = rank_shard_of(s, 2),
                                     .first_moment_only = s->first_moment_only,
                                     .dtype = SAFETENSORS_F32,
                                     .step = step};
}

/* What sharding_save does: saves the steps first, first + 1, ... */
struct sharded_save {
    const char *folder;
    enum sharding how;
    bool tied, async;
    enum safetensors_dtype dtype; /* not F32: model only */
    int first, count;
    uint32_t first_moment_only;
    int bad_rank; /* its first element is NaN; 0: none */
    const struct tokenizer *tokenizer;
    enum status statuses[8]; /* each rank's first failure */
    char messages[8][STATUS_TEXT];
    bool is_shared[8];
};

static inline void sharding_note(struct sharded_save *s, int rank, enum status st)
{
    if (!st || s->statuses[rank]) return;
    s->statuses[rank] = st;
    s->is_shared[rank] = status_is_shared();
    snprintf(s->messages[rank], STATUS_TEXT, "%s", status_message());
}

static inline enum status sharding_save_on_rank(const struct comm *world, void *context)
{
    struct sharded_save *saving = context;
    struct model_shape shape = sharding_shape(saving->tied);
    struct rank_shard s;
    struct checkpointer *c;
    rank_shard_open(&s, saving->how, saving->tied, world->rank, world->size);
    rank_shard_omit(&s, saving->first_moment_only);
    rank_shard_fill(&s);
    int rank = world->rank;
    if (rank && rank == saving->bad_rank) s.buffers[0][s.shard.runs[0].at] = NAN;
    void *staging = heap(staging_bytes(&s.shard, rank_shard_of(&s, 2), F32, NULL, false));
    struct checkpointer_options o = {
        .folder = saving->folder, .async = saving->async, .staging = staging, .world = world};
    enum status st = checkpointer_open(&c, &o);
    for (int step = saving->first; !st && step < saving->first + saving->count; step++) {
        struct checkpoint_state state = rank_shard_state(&s, &shape, world, step);
        state.dtype = saving->dtype;
        if (state.dtype != SAFETENSORS_F32) state.exp_avg = state.exp_avg_sq = NULL;
        state.tokenizer = saving->tokenizer;
        if (rank == 0) text_addf(&state.train, "{\"step\": %d}", step);
        sharding_note(saving, rank, checkpointer_save(c, &state));
        text_release(&state.train);
        if (!saving->async) continue;
        /* The caller continues at once, and communicates meanwhile. */
        for (int b = 0; b < 3; b++)
            memset(s.buffers[b], 7, rank_shard_of(&s, b)->elements * sizeof(float));
        for (double x = 1; x < 100; x++) {
            double sum = x;
            if ((st = comm_all_reduce(world, REDUCE_SUM, &sum, 1))) break;
            if (sum < x * world->size || sum > x * world->size) st = STATUS_DATA;
        }
        rank_shard_fill(&s);
    }
    sharding_note(saving, rank, st);
    if (!st) sharding_note(saving, rank, checkpointer_close(c, false));
    free(staging);
    rank_shard_release(&s);
    return st;
}

/* On `size` ranks; 0: on comm_self. */
static inline void sharding_save(struct sharded_save *s, int size)
{
    if (size)
        CHECK_STATUS(OK, ranks_run(size, sharding_save_on_rank, s));
    else
        CHECK_STATUS(OK, sharding_save_on_rank(comm_self(), s));
}
