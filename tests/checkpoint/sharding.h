/* shares.h -- a model's state shared out over ranks in many ways, for tests. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/rig.h"
#include "comm/ranks.h"

/* Who holds what. */
enum sharing {
    SHARING_PARTS,   /* a part of every unit, as FSDP */
    SHARING_ALL,     /* every rank the whole */
    SHARING_TWICE,   /* parts of half as many ranks, each on two */
    SHARING_COLUMNS, /* runs of columns of the matrices, as tensor parallelism; the vectors all */
    SHARING_UNEVEN,  /* overlapping runs of odd lengths; rank 0 holds no matrix */
    SHARING_COUNT
};

/* What one rank has. */
struct share {
    struct layout layout;
    struct shard shard;
    float *buffers[3]; /* weights, moments */
};

/* Of some megabytes, so that every file has several chunks. */
static inline struct model_shape shares_shape(bool tied)
{
    return (struct model_shape){.V = 1500,
                                .D = 128,
                                .L = 2,
                                .H = 4,
                                .G = 2,
                                .K = 32,
                                .F = 600,
                                .rope_theta = 1e4,
                                .norm_eps = 1e-5,
                                .tied = tied,
                                .depth_init = true,
                                .max_context = 64};
}

/* Element i of a tensor in a buffer: any number, no two alike. */
static inline float shares_value(int buffer, int tensor, size_t i)
{
    uint64_t x = ((uint64_t)buffer << 40 ^ (uint64_t)tensor << 32 ^ i) * 0x9E3779B97F4A7C15u;
    return (float)(int32_t)(x >> 32) * 0x1p-34f;
}

static inline void share_add(struct shard *p, int tensor, size_t first, size_t count)
{
    p->runs = heap_grow(p->runs, p->count + 1, sizeof *p->runs);
    p->runs[p->count++] = (struct shard_run){tensor, first, count, p->elements};
    p->elements += count + 3; /* what lies between is nobody's */
}

static inline void share_columns(struct shard *p, const struct layout *l, int rank, int size)
{
    for (int i = l->num_tensors - 1; i >= 0; i--) {
        const struct tensor_slot *t = &l->tensors[i];
        size_t columns = (size_t)t->columns, first = columns * (size_t)rank / (size_t)size;
        size_t count = columns * ((size_t)rank + 1) / (size_t)size - first;
        if (columns == 1) share_add(p, i, 0, t->elements);
        for (size_t row = 0; columns > 1 && row < (size_t)t->rows; row++)
            share_add(p, i, row * columns + first, count);
    }
}

static inline void share_uneven(struct shard *p, const struct layout *l, int rank, int size)
{
    for (int i = 0; i < l->num_tensors; i++) {
        size_t n = l->tensors[i].elements, others = (size_t)size - 1, at = (size_t)rank - 1;
        if (l->tensors[i].columns == 1 && rank == i % size) share_add(p, i, 0, n);
        if (l->tensors[i].columns == 1 || rank == 0) continue;
        size_t begin = n * at / others, end = n * (at + 1) / others + 1001;
        if (end > n) end = n;
        share_add(p, i, begin + 77, end - begin - 77);
        share_add(p, i, begin, 77);
    }
}

static inline void share_open(struct share *s, enum sharing how, bool tied, int rank, int size)
{
    struct model_shape shape = shares_shape(tied);
    bool parts = how == SHARING_PARTS || how == SHARING_TWICE;
    int num_parts = how == SHARING_PARTS ? size : how == SHARING_TWICE ? (size + 1) / 2 : 1;
    *s = (struct share){0};
    layout_init(&s->layout, &shape, num_parts);
    if (how == SHARING_COLUMNS)
        share_columns(&s->shard, &s->layout, rank, size);
    else if (how == SHARING_UNEVEN && size > 1)
        share_uneven(&s->shard, &s->layout, rank, size);
    else
        shard_init(&s->shard, &s->layout, parts ? rank % num_parts : 0, num_parts);
    for (int b = 0; b < 3; b++) s->buffers[b] = heap(s->shard.elements * sizeof(float));
}

static inline void share_fill(struct share *s)
{
    for (int b = 0; b < 3; b++)
        for (size_t i = 0; i < s->shard.count; i++) {
            const struct shard_run *p = &s->shard.runs[i];
            for (size_t j = 0; j < p->count; j++)
                s->buffers[b][p->at + j] = shares_value(b, p->tensor, p->first + j);
        }
}

/* Buffer b has every element of its pieces. */
static inline bool share_is_full(const struct share *s, int b)
{
    for (size_t i = 0; i < s->shard.count; i++) {
        const struct shard_run *p = &s->shard.runs[i];
        for (size_t j = 0; j < p->count; j++) {
            float want = shares_value(b, p->tensor, p->first + j);
            if (memcmp(&s->buffers[b][p->at + j], &want, sizeof want)) return false;
        }
    }
    return true;
}

static inline void share_release(struct share *s)
{
    for (int b = 0; b < 3; b++) free(s->buffers[b]);
    shard_release(&s->shard);
    layout_release(&s->layout);
}

/* Of everything the share has; `shape` and `world` are borrowed. */
static inline struct checkpoint_state share_state(struct share *s, const struct model_shape *shape,
                                                  const struct comm *world, int64_t step)
{
    return (struct checkpoint_state){.shape = shape,
                                     .layout = &s->layout,
                                     .shard = &s->shard,
                                     .world = world,
                                     .weights = s->buffers[0],
                                     .exp_avg = s->buffers[1],
                                     .exp_avg_sq = s->buffers[2],
                                     .dtype = SAFETENSORS_F32,
                                     .step = step};
}

/* What ranks that save do; the steps are first, first + 1, ... */
struct shared_saving {
    const char *folder;
    enum sharing how;
    bool tied, async;
    enum safetensors_dtype dtype; /* not F32: the model only */
    int first, count;
    const struct tokenizer *tokenizer;
    enum status statuses[8]; /* of each rank's last call that was not OK */
    char messages[8][STATUS_TEXT];
};

static inline void shares_note(struct shared_saving *s, int rank, enum status st)
{
    if (!st || s->statuses[rank]) return;
    s->statuses[rank] = st;
    snprintf(s->messages[rank], STATUS_TEXT, "%s", status_message());
}

static inline enum status shares_save_body(const struct comm *world, void *context)
{
    struct shared_saving *saving = context;
    struct model_shape shape = shares_shape(saving->tied);
    struct share s;
    struct checkpointer *c;
    share_open(&s, saving->how, saving->tied, world->rank, world->size);
    share_fill(&s);
    int rank = world->rank;
    void *staging = heap(checkpoint_staging_bytes(&s.shard));
    struct checkpointer_options o = {
        .folder = saving->folder, .async = saving->async, .staging = staging, .world = world};
    enum status st = checkpointer_open(&c, &o);
    for (int step = saving->first; !st && step < saving->first + saving->count; step++) {
        struct checkpoint_state state = share_state(&s, &shape, world, step);
        state.dtype = saving->dtype;
        if (state.dtype != SAFETENSORS_F32) state.exp_avg = state.exp_avg_sq = NULL;
        state.tokenizer = saving->tokenizer;
        if (rank == 0) text_addf(&state.train, "{\"step\": %d}", step);
        shares_note(saving, rank, checkpointer_save(c, &state));
        text_release(&state.train);
        if (!saving->async) continue;
        /* The caller goes on at once, and talks to the others meanwhile. */
        for (int b = 0; b < 3; b++) memset(s.buffers[b], 7, s.shard.elements * sizeof(float));
        for (double x = 1; x < 100; x++) {
            double sum = x;
            if ((st = comm_all_reduce(world, REDUCE_SUM, &sum, 1))) break;
            if (sum < x * world->size || sum > x * world->size) st = STATUS_DATA;
        }
        share_fill(&s);
    }
    shares_note(saving, rank, st);
    if (!st) shares_note(saving, rank, checkpointer_close(c));
    free(staging);
    share_release(&s);
    return st;
}

/* On so many ranks; 0: on comm_self. */
static inline void shares_save(struct shared_saving *s, int size)
{
    if (size)
        CHECK_STATUS(OK, ranks_run(size, shares_save_body, s));
    else
        CHECK_STATUS(OK, shares_save_body(comm_self(), s));
}
