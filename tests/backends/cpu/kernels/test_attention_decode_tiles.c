// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/attention.h"

/* Sequences of different lengths, whose keys are rows of one cache. */
enum { ROWS = 5, CAPACITY = 600, HEADS = 6, GROUPS = 2 };
struct cache_rows {
    struct attention a;
    int32_t start[ROWS], end[ROWS];
    void *q, *k, *v, *out;
    float lse[ROWS * HEADS];
};

static struct cache_rows rows_make(int K, enum dtype dtype)
{
    static const int32_t start[ROWS] = {0, 30, 0, 9, 40}, end[ROWS] = {600, 31, 47, 9, 590};
    size_t Q = HEADS * (size_t)K, P = GROUPS * (size_t)K;
    struct cache_rows r = {.a = {ROWS, 1, CAPACITY, HEADS, GROUPS, K, Q, P, 0.3f, .dtype = dtype}};
    memcpy(r.start, start, sizeof start), memcpy(r.end, end, sizeof end);
    r.q = rig_random(1, ROWS * Q, dtype), r.out = rig_zeros(ROWS * Q, dtype);
    r.k = rig_random(2, ROWS * CAPACITY * P, dtype);
    r.v = rig_random(3, ROWS * CAPACITY * P, dtype);
    return r;
}

static struct attention_fwd rows_io(struct cache_rows *r)
{
    return (struct attention_fwd){r->q, r->k, r->v, r->start, r->end, r->out, r->lse};
}

static void rows_release(struct cache_rows *r) { free(r->q), free(r->k), free(r->v), free(r->out); }

OPS_TEST(rows_of_different_lengths_agree_with_the_reference)
{
    static const int head_sizes[] = {20, 64, 96, 256};
    for (size_t i = 0; i < DTYPE_COUNT * sizeof head_sizes / sizeof *head_sizes; i++) {
        enum dtype dtype = (enum dtype)(i % DTYPE_COUNT);
        int K = head_sizes[i / DTYPE_COUNT];
        struct cache_rows plain = rows_make(K, dtype), fast = rows_make(K, dtype);
        struct attention_fwd plain_io = rows_io(&plain), fast_io = rows_io(&fast);
        RIG_RUN(attention_forward(&ops_cpu_reference, &plain.a, &plain_io, rig_queue()));
        RIG_RUN(attention_forward(rig_fast(), &fast.a, &fast_io, rig_queue()));
        RIG_CLOSE(fast.out, plain.out, ROWS * HEADS * (size_t)K, dtype);
        for (int n = 0; n < ROWS * HEADS; n++) /* a row without keys: -inf */
            CHECK(fast.lse[n] == plain.lse[n] || fabsf(fast.lse[n] - plain.lse[n]) < 1e-3f);
        rows_release(&plain), rows_release(&fast);
    }
}

/* A text does not depend on the others in its batch, nor on the capacity of the cache. */
CPU_ISAS_TEST(a_row_has_the_same_bits_alone_and_in_a_batch)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        struct cache_rows r = rows_make(64, (enum dtype)d);
        size_t row = HEADS * 64 * dtype_bytes(r.a.dtype), bytes = row / HEADS * GROUPS;
        struct attention_fwd io = rows_io(&r);
        RIG_RUN(attention_forward(rig_fast(), &r.a, &io, rig_queue()));
        struct attention one = r.a;
        one.B = 1;
        for (size_t b = 0; b < ROWS; b++) {
            if (r.end[b] == r.start[b]) continue;
            void *out = rig_zeros(HEADS * 64, r.a.dtype);
            float lse[HEADS];
            size_t first = (b * CAPACITY + (size_t)r.start[b]) * bytes;
            one.S = r.end[b] - r.start[b];
            struct attention_fwd alone = {.q_BTHK = (char *)r.q + b * row,
                                          .k_BSGK = (char *)r.k + first,
                                          .v_BSGK = (char *)r.v + first,
                                          .out_BTHK = out,
                                          .lse_BHT = lse};
            RIG_RUN(attention_forward(rig_fast(), &one, &alone, rig_queue()));
            CHECK(!memcmp(out, (char *)r.out + b * row, row));
            free(out);
        }
        rows_release(&r);
    }
}
