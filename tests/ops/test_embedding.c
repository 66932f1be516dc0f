// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/embedding.h"

OPS_TEST(embedding_agrees_with_the_reference_and_repeated_ids_accumulate)
{
    enum { N = 37, V = 11, D = 131 };
    int32_t ids[N];
    for (int n = 0; n < N; n++) ids[n] = n * 7 % V;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype dtype = (enum dtype)d;
        struct embedding e = {N, V, D, dtype, 0};
        void *w = rig_random(1, V * D, dtype), *dy = rig_random(2, N * D, dtype), *y[2], *dw[2];
        for (int i = 0; i < 2; i++) {
            const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
            y[i] = rig_zeros(N * D, dtype), dw[i] = rig_random(3, V * D, F32);
            struct embedding_fwd forward = {ids, w, y[i]};
            struct embedding_bwd backward = {ids, dy, dw[i]};
            RIG_RUN(embedding_forward(ops, &e, &forward, rig_queue()));
            RIG_RUN(embedding_backward(ops, &e, &backward, rig_queue()));
        }
        CHECK(!memcmp(y[0], y[1], N * D * dtype_bytes(dtype)));
        CHECK(!memcmp(dw[0], dw[1], V * D * sizeof(float)));
        for (int i = 0; i < 2; i++) free(y[i]), free(dw[i]);
        free(w), free(dy);
    }
}

/* A table in two shards: their results add up to that of the whole table. */
OPS_TEST(embedding_shard_gives_zeros_for_other_ids)
{
    enum { N = 9, V = 8, D = 5 };
    int32_t ids[N];
    float *w = rig_random(1, V * D, F32), *dy = rig_random(2, N * D, F32);
    for (int n = 0; n < N; n++) ids[n] = n * 3 % V;
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        float y[N * D], half[2][N * D], dw[V * D] = {0}, parts[V * D] = {0};
        struct embedding whole = {N, V, D, F32, 0};
        RIG_RUN(embedding_forward(ops, &whole, &(struct embedding_fwd){ids, w, y}, rig_queue()));
        RIG_RUN(embedding_backward(ops, &whole, &(struct embedding_bwd){ids, dy, dw}, rig_queue()));
        for (int p = 0; p < 2; p++) {
            struct embedding e = {N, V / 2, D, F32, p * V / 2};
            size_t at = (size_t)e.first * D;
            struct embedding_fwd forward = {ids, w + at, half[p]};
            struct embedding_bwd backward = {ids, dy, parts + at};
            RIG_RUN(embedding_forward(ops, &e, &forward, rig_queue()));
            RIG_RUN(embedding_backward(ops, &e, &backward, rig_queue()));
        }
        for (int i = 0; i < N * D; i++) CHECK(half[0][i] + half[1][i] == y[i]);
        CHECK(!memcmp(dw, parts, sizeof dw));
    }
    free(w), free(dy);
}

struct embedding_loss {
    struct embedding e;
    int32_t ids[4];
    float *w, *y, *weight;
};

static double loss(void *context)
{
    struct embedding_loss *c = context;
    struct embedding_fwd io = {c->ids, c->w, c->y};
    CHECK_STATUS(OK, embedding_forward(&ops_cpu_reference, &c->e, &io, rig_queue()));
    return rig_dot(c->y, c->weight, 12);
}

TEST(embedding_gradient_matches_finite_differences)
{
    struct embedding_loss c = {.e = {4, 5, 3, F32, 0}, .ids = {2, 0, 2, 4}};
    float dw[15] = {0};
    c.w = rig_random(1, 15, F32), c.y = rig_zeros(12, F32), c.weight = rig_random(2, 12, F32);
    struct embedding_bwd io = {c.ids, c.weight, dw};
    CHECK_STATUS(OK, embedding_backward(&ops_cpu_reference, &c.e, &io, rig_queue()));
    rig_check_gradient("w", c.w, 15, dw, loss, &c);
    free(c.w), free(c.y), free(c.weight);
}

TEST(embedding_rejects_empty_sizes)
{
    struct embedding e = {1, 0, 1, F32, 0};
    CHECK_STATUS(SHAPE, embedding_forward(&ops_cpu_reference, &e, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, embedding_backward(&ops_cpu_reference, &e, NULL, rig_queue()));
}

/* Half of the tokens have the same id, and some ids are not in this shard. */
static void check_many(int N, int V, int first, int D, enum dtype dtype)
{
    struct embedding e = {N, V, D, dtype, first};
    size_t n = (size_t)N, table = (size_t)V * (size_t)D, tokens = n * (size_t)D;
    int32_t *ids = heap(n * sizeof *ids);
    void *w = rig_random(1, table, dtype), *dy = rig_random(2, tokens, dtype), *y[2];
    float *dw[2];
    for (int i = 0; i < N; i++)
        ids[i] = i % 2 ? first + V / 3
                       : (int32_t)((unsigned)i * 2654435761u % (unsigned)(V + first + 9));
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
        y[i] = rig_zeros(tokens, dtype), dw[i] = rig_random(3, table, F32);
        RIG_RUN(embedding_forward(ops, &e, &(struct embedding_fwd){ids, w, y[i]}, rig_queue()));
        RIG_RUN(embedding_backward(ops, &e, &(struct embedding_bwd){ids, dy, dw[i]}, rig_queue()));
    }
    CHECK(!memcmp(y[0], y[1], tokens * dtype_bytes(dtype)));
    CHECK(!memcmp(dw[0], dw[1], table * sizeof(float)));
    for (int i = 0; i < 2; i++) free(y[i]), free(dw[i]);
    free(w), free(dy), free(ids);
}

OPS_TEST(embedding_gradients_accumulate_in_token_order)
{
    check_many(1, 1, 0, 1, F32);
    check_many(2500, 1027, 0, 3, BF16);
    check_many(1024, 512, 300, 8, F32);
    check_many(1025, 511, 300, 8, BF16);
    check_many(40, 300000, 70000, 1, F32);
    check_many(3, 5, 2, 700, BF16);
    check_many(3, 5, 2, 701, F32);
}
