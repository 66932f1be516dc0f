/* Attention to several blocks of keys: their scratch, if they are split over thread blocks, and
 * their weights. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/gpu.h"
#include "ops/attention.h"
#include "ops/rig.h"
#include "tensor/device.h"
#include "tensor/queue.h"

/* A decoding step's attention: one K for keys and values, T queries to the last of S keys. */
static struct attention decoding(int B, int H, int G, int T, int S)
{
    enum { K = 16 };
    return (struct attention){.B = B,
                              .T = T,
                              .S = S,
                              .H = H,
                              .G = G,
                              .K = K,
                              .q_stride = (size_t)H * K,
                              .kv_stride = (size_t)G * K,
                              .scale = 0.25f,
                              .causal = true,
                              .dtype = F32};
}

static void size(const struct ops *ops, struct queue *queue, struct attention a)
{
    struct attention_fwd io = {0};
    queue->sizing = true;
    CHECK_STATUS(OK, attention_forward(ops, &a, &io, queue));
    queue->sizing = false;
}

/* With the scratch that was sized; an arena that is too small would end the test. */
static void run(const struct ops *ops, struct queue *queue, struct attention a)
{
    struct arena memory = {0};
    size_t tokens = (size_t)a.B * (size_t)a.T, keys = (size_t)a.B * (size_t)a.S * a.kv_stride;
    size_t elements = 2 * tokens * a.q_stride + keys + tokens * (size_t)a.H;
    CHECK_STATUS(OK, arena_init(&memory, elements * sizeof(float) + 4 * ARENA_ALIGN,
                                queue_device_allocator(queue)));
    float *q = arena_alloc(&memory, tokens * a.q_stride, sizeof *q);
    float *kv = arena_alloc(&memory, keys, sizeof *kv);
    float *out = arena_alloc(&memory, tokens * a.q_stride, sizeof *out);
    float *lse = arena_alloc(&memory, tokens * (size_t)a.H, sizeof *lse), last;
    struct attention_fwd io = {
        .q_BTHK = q, .k_BSGK = kv, .v_BSGK = kv, .out_BTHK = out, .lse_BHT = lse};
    CHECK_STATUS(OK,
                 arena_init(&queue->scratch, queue->scratch.peak, queue_device_allocator(queue)));
    CHECK_STATUS(OK, attention_forward(ops, &a, &io, queue));
    CHECK_STATUS(OK, queue_copy(queue, &last, lse + tokens * (size_t)a.H - 1, sizeof last));
    CHECK(fabsf(last - logf((float)a.S)) < 1e-4f); /* all keys are zero */
    arena_release(&queue->scratch), arena_release(&memory);
}

static void check_scratch(struct queue *queue, const struct ops *ops)
{
    size(ops, queue, decoding(11, 4, 4, 1, 800)); /* 25 blocks of keys: 5 splits */
    run(ops, queue, decoding(11, 4, 4, 1, 768));  /* 24 blocks: 6 splits */
    queue->scratch = (struct arena){.allocator = queue_device_allocator(queue)};
    for (int T = 1; T <= 32; T = T < 8 ? T + 1 : 2 * T)
        size(ops, queue, decoding(16, 10, 2, T, 240));
    run(ops, queue, decoding(16, 10, 2, 12, 239)); /* the heads of a group share a tile */
}

TEST(attention_scratch_sized_for_some_lengths_suffices_for_shorter_ones)
{
    struct queue *queue;
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    check_scratch(queue, &gpu_emu32_ops);
    gpu_emu32_close(queue);
    CHECK_STATUS(OK, gpu_emu64_open(&queue, 0));
    check_scratch(queue, &gpu_emu64_ops);
    gpu_emu64_close(queue);
}

static void fill(void *x, size_t n, float value, enum dtype dtype)
{
    for (size_t i = 0; i < n; i++)
        if (dtype == F32)
            ((float *)x)[i] = value;
        else
            ((bf16 *)x)[i] = bf16_from_f32(value);
}

/* The keys are several blocks: a kernel that rescales its sums from block to block must not do so
 * if the row max stays, not even by a rounding error, which grows with the scores. */
OPS_TEST(attention_weights_equal_scores_equally)
{
    enum { S = 192, K = 8 };
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int key = 8; key < 16; key++) {
            enum dtype dtype = (enum dtype)d;
            struct attention a = {1, 1, S, 1, 1, K, K, K, 1, false, dtype, .keys = ALL_KEYS};
            void *q = rig_zeros(K, dtype), *k = rig_zeros(S * K, dtype);
            void *v = rig_zeros(S * K, dtype), *out = rig_zeros(K, dtype);
            float lse;
            struct attention_fwd io = {q, k, v, NULL, NULL, out, &lse};
            fill(q, K, 16, dtype), fill(k, S * K, (float)key, dtype);
            fill(v, S * K, 1, dtype), fill(v, S * K / 2, -1, dtype);
            RIG_RUN(attention_forward(rig_fast(), &a, &io, rig_queue()));
            for (int i = 0; i < K; i++)
                CHECK_NEAR(dtype == F32 ? ((float *)out)[i] : bf16_to_f32(((bf16 *)out)[i]), 0,
                           1e-6);
            free(q), free(k), free(v), free(out);
        }
}
