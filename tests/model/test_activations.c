// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/activations.h"

static size_t padded(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }

TEST(activations_are_saved_as_recompute_says)
{
    struct model m = {.shape = rig_shape(), .dtype = BF16, .plan = plan_single_device()};
    size_t N = 10, D = 16, Q = 16, C = 32, F = 24, R = 6;
    size_t cheap = 2 * padded(N * D * 2) + padded(N * F * 2); /* two norms, SwiGLU */
    size_t costly = padded(N * C * 2) + padded(N * Q * 2) + padded(N * D * 2) +
                    padded(N * 2 * F * 2) + 2 * padded(N * 4) + padded(N * 4 * 4);
    for (int i = 0; i < 2 * (RECOMPUTE_FULL + 1); i++) {
        enum recompute kind = (enum recompute)(i % (RECOMPUTE_FULL + 1));
        m.shape.qk_norm = i > RECOMPUTE_FULL;
        if (i == RECOMPUTE_FULL + 1) cheap += padded(N * C * 2), costly += padded(N * R * 4);
        size_t saved[] = {cheap + costly, costly, 0};
        struct arena own = {0}, shared = {0};
        struct activations a = {.recompute = kind};
        activations_alloc_saved(&m, N, &a, &own);
        CHECK(own.used == saved[kind]);
        activations_alloc_shared(&m, N, kind, &a, &shared);
        CHECK(own.used + shared.used == cheap + costly);
    }
}

TEST(activations_that_are_not_saved_are_in_shared_buffers)
{
    struct model m = {.shape = rig_shape(), .dtype = F32, .plan = plan_single_device()};
    struct arena step;
    struct activations shared, a;
    CHECK_STATUS(OK, arena_init(&step, 1 << 16, NULL));
    activations_alloc_shared(&m, 3, RECOMPUTE_SELECTIVE, &shared, &step);
    a = shared, a.recompute = RECOMPUTE_SELECTIVE;
    activations_alloc_saved(&m, 3, &a, &step);
    CHECK(a.norm1_ND == shared.norm1_ND && a.norm2_ND == shared.norm2_ND);
    CHECK(a.hidden_NF == shared.hidden_NF && a.hidden_NF && !shared.qkv_NC && a.qkv_NC);
    arena_release(&step);
}
