/* gemm.c (cpu) -- splits long K into slices that bound the packing buffers.  A bf16 C would round
 * the partial sums after every slice, so those are accumulated in an f32 buffer. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm.h"

#include "backends/cpu/kernels/gemm_slice.h"
#include "backends/cpu/kernels/tiles.h"
#include "tensor/queue.h"

/* C = bf16(partials (+ D)). */
static void store_partials(const struct gemm_shape *s, const float *partials, const bf16 *d,
                           bf16 *c, int num_threads)
{
    size_t n = (size_t)s->M * (size_t)s->N; /* C and D have the same layout */
#pragma omp parallel for schedule(static) num_threads(num_threads)
    for (size_t at = 0; at < n; at++) {
        float sum = s->scaled ? s->scale * partials[at] : partials[at];
        c[at] = bf16_from_f32(s->accumulate ? bf16_to_f32(d[at]) + sum : sum);
    }
}

static const struct gemm_loops *loops_for(enum dtype dtype)
{
#if defined(TILES)
    if (dtype == BF16) return &KERNEL(gemm_tiles);
#endif
    (void)dtype;
    return &KERNEL(gemm_blocks);
}

enum status KERNEL(gemm)(const struct gemm_shape *s, const struct gemm_blocking *blocking,
                         const struct gemm_buffers *io, struct queue *queue)
{
    size_t M = (size_t)s->M, N = (size_t)s->N, K = (size_t)s->K, mark = arena_mark(&queue->scratch);
    struct operand a = {io->a,          s->dtype,    M, K, s->transpose_a ? M : K,
                        s->transpose_a, s->a_paneled};
    struct operand b = {io->b,           s->dtype,    N, K, s->transpose_b ? K : N,
                        !s->transpose_b, s->b_paneled};
    const struct gemm_loops *loops = loops_for(s->dtype);
    size_t steps = panel_count(K), slice_steps = loops->slice_steps(s);
    size_t num_slices = (steps + slice_steps - 1) / slice_steps,
           max_steps = (steps + num_slices - 1) / num_slices;
    bool f32_partials = num_slices > 1 && s->out == BF16;
    char *memory = arena_alloc(
        &queue->scratch, loops->slice_bytes(s, max_steps, queue->num_threads), sizeof *memory);
    float *partials = f32_partials ? arena_alloc(&queue->scratch, M * N, sizeof *partials) : NULL;
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    struct gemm_shape slice_shape = *s;
    struct gemm_slice slice = {.s = &slice_shape,
                               .blocking = blocking,
                               .c = f32_partials ? partials : io->c,
                               .num_threads = queue->num_threads,
                               .max_steps = max_steps};
    slice_shape.scaled = s->scaled && !f32_partials; /* f32 partials are scaled at the end */
    if (f32_partials) slice_shape.out = F32;
    for (size_t i = 0; i < num_slices; i++) {
        size_t begin = steps * i / num_slices * PANEL,
               end = size_min(steps * (i + 1) / num_slices * PANEL, K);
        slice_shape.K = (int)(end - begin),
        slice_shape.accumulate = i > 0 || (s->accumulate && !f32_partials);
        slice.d = i > 0 ? slice.c : io->d;
        slice.a = operand_k_range(a, begin, end), slice.b = operand_k_range(b, begin, end);
        loops->multiply(&slice, memory);
    }
    if (f32_partials) store_partials(s, partials, io->d, io->c, queue->num_threads);
    return STATUS_OK;
}
