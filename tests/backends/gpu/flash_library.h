/* flash_library.h -- our own kernels as a library that computes rectangles (attention_part.h), for
 * tests in the emulator (warps of 32). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/attention_part.h"
#include "backends/gpu/flash_attention.h"

/* NULL during a sizing pass. */
static inline void *flash_at(const void *x, size_t elements, enum dtype dtype)
{
    return x ? (char *)(uintptr_t)x + elements * dtype_bytes(dtype) : NULL;
}

/* One row of the rectangle, whose queries and keys are adjacent. */
static inline struct attention flash_row(const struct attention *a)
{
    struct attention row = *a;
    row.B = 1, row.T = a->T - a->rectangle.first_query, row.S = a->rectangle.num_keys;
    row.rectangle = (struct attention_rectangle){0};
    return row;
}

static inline bool flash_library_has_plan(void *context, const struct attention *a, bool backward,
                                          const struct queue *queue)
{
    (void)context, (void)a, (void)backward, (void)queue;
    return true;
}

static inline enum status flash_library_forward(void *context, const struct attention *a,
                                                const struct attention_fwd *io, struct queue *queue,
                                                bool *done)
{
    struct attention row = flash_row(a);
    size_t first = (size_t)a->rectangle.first_query, R = (size_t)row.T;
    size_t H = (size_t)a->H, K = (size_t)a->K;
    (void)context;
    *done = true;
    for (size_t b = 0; b < (size_t)a->B; b++) {
        size_t query = b * (size_t)a->T + first, key = b * (size_t)a->S;
        struct attention_fwd part = {.q_BTHK = flash_at(io->q_BTHK, query * a->q_stride, BF16),
                                     .k_BSGK = flash_at(io->k_BSGK, key * a->kv_stride, BF16),
                                     .v_BSGK = flash_at(io->v_BSGK, key * a->kv_stride, BF16),
                                     .out_BTHK = flash_at(io->out_BTHK, b * R * H * K, BF16),
                                     .lse_BHT = flash_at(io->lse_BHT, b * H * R, F32)};
        TRY(GPU_NAME(flash_attention_forward)(&row, &part, queue));
    }
    return STATUS_OK;
}

/* The kernels write gradients as they read q, k and v: with their strides, into scratch. */
struct flash_gradients {
    bf16 *dq, *dk, *dv;
};

static inline enum status flash_copy(bf16 *to, const bf16 *from, size_t tokens, size_t stride,
                                     size_t width, struct queue *queue)
{
    for (size_t t = 0; t < tokens; t++)
        TRY(queue_copy(queue, to + t * width, from + t * stride, width * sizeof *to));
    return STATUS_OK;
}

static inline enum status flash_library_backward(void *context, const struct attention *a,
                                                 const struct attention_bwd *io,
                                                 struct queue *queue, bool *done)
{
    struct attention row = flash_row(a);
    size_t first = (size_t)a->rectangle.first_query, R = (size_t)row.T, C = (size_t)row.S;
    size_t H = (size_t)a->H, Q = H * (size_t)a->K, P = (size_t)a->G * (size_t)a->K;
    size_t mark = arena_mark(&queue->scratch);
    struct flash_gradients d = {arena_alloc(&queue->scratch, R * a->q_stride, sizeof(bf16)),
                                arena_alloc(&queue->scratch, C * a->kv_stride, sizeof(bf16)),
                                arena_alloc(&queue->scratch, C * a->kv_stride, sizeof(bf16))};
    (void)context;
    *done = true;
    for (size_t b = 0; b < (size_t)a->B; b++) {
        size_t query = b * (size_t)a->T + first, key = b * (size_t)a->S;
        struct attention_bwd part = {.q_BTHK = flash_at(io->q_BTHK, query * a->q_stride, BF16),
                                     .k_BSGK = flash_at(io->k_BSGK, key * a->kv_stride, BF16),
                                     .v_BSGK = flash_at(io->v_BSGK, key * a->kv_stride, BF16),
                                     .out_BTHK = flash_at(io->out_BTHK, query * Q, BF16),
                                     .dout_BTHK = flash_at(io->dout_BTHK, query * Q, BF16),
                                     .lse_BHT = flash_at(io->lse_BHT, b * H * R, F32),
                                     .dq_BTHK = d.dq,
                                     .dk_BSGK = d.dk,
                                     .dv_BSGK = d.dv};
        TRY(GPU_NAME(flash_attention_backward)(&row, &part, queue));
        if (queue->sizing) continue;
        TRY(flash_copy((bf16 *)io->dq_BTHK + b * R * Q, d.dq, R, a->q_stride, Q, queue));
        TRY(flash_copy((bf16 *)io->dk_BSGK + b * C * P, d.dk, C, a->kv_stride, P, queue));
        TRY(flash_copy((bf16 *)io->dv_BSGK + b * C * P, d.dv, C, a->kv_stride, P, queue));
    }
    arena_reset(&queue->scratch, mark);
    return STATUS_OK;
}
