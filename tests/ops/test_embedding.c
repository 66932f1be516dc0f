// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/embedding.h"

OPS_TEST(embedding_agrees_with_the_reference_and_repeats_add_up)
{
    enum { N = 37, V = 11, D = 131 };
    int32_t ids[N];
    for (int n = 0; n < N; n++) ids[n] = n * 7 % V;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype dtype = (enum dtype)d;
        struct embedding e = {N, V, D, dtype};
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

TEST(embedding_gradient_is_the_difference)
{
    struct embedding_loss c = {.e = {4, 5, 3, F32}, .ids = {2, 0, 2, 4}};
    float dw[15] = {0};
    c.w = rig_random(1, 15, F32), c.y = rig_zeros(12, F32), c.weight = rig_random(2, 12, F32);
    struct embedding_bwd io = {c.ids, c.weight, dw};
    CHECK_STATUS(OK, embedding_backward(&ops_cpu_reference, &c.e, &io, rig_queue()));
    rig_check_gradient("w", c.w, 15, dw, loss, &c);
    free(c.w), free(c.y), free(c.weight);
}

TEST(embedding_refuses_empty_sizes)
{
    struct embedding e = {1, 0, 1, F32};
    CHECK_STATUS(SHAPE, embedding_forward(&ops_cpu_reference, &e, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, embedding_backward(&ops_cpu_reference, &e, NULL, rig_queue()));
}
