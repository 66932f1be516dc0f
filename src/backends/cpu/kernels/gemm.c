/* gemm.c (cpu) -- long sums are made part by part; where C is bf16, which would round the sums of
 * every part, they wait in f32 for the last one.  gemm_engine.h names the loops that multiply. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm.h"

#include "backends/cpu/kernels/gemm_engine.h"
#include "tensor/queue.h"

/* C = the sums that waited (+ D). */
static void finish(const struct product_shape *s, const float *sums, const bf16 *d, bf16 *c,
                   int num_threads)
{
    size_t n = (size_t)s->M * (size_t)s->N; /* both lie alike */
#pragma omp parallel for schedule(static) num_threads(num_threads)
    for (size_t at = 0; at < n; at++) {
        float sum = s->scaled ? s->scale * sums[at] : sums[at];
        c[at] = bf16_from_f32(s->accumulate ? bf16_to_f32(d[at]) + sum : sum);
    }
}

enum status KERNEL(gemm)(const struct product_shape *s, const struct way *way,
                         const struct product_io *io, struct queue *on)
{
    size_t M = (size_t)s->M, N = (size_t)s->N, K = (size_t)s->K, mark = arena_mark(&on->scratch);
    struct lines left = {io->a, BF16, M, K, s->transpose_a ? M : K, s->transpose_a, s->a_paneled};
    struct lines right = {io->b, BF16, N, K, s->transpose_b ? K : N, !s->transpose_b, s->b_paneled};
    size_t steps = panels_of(K), depth = KERNEL(gemm_depth)(s);
    size_t parts = (steps + depth - 1) / depth, deepest = (steps + parts - 1) / parts;
    bool wait = parts > 1 && s->out == BF16;
    char *memory =
        arena_take(&on->scratch, KERNEL(gemm_bytes)(s, deepest, on->num_threads), sizeof *memory);
    float *waiting = wait ? arena_take(&on->scratch, M * N, sizeof *waiting) : NULL;
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    struct product_shape some = *s;
    struct gemm_part part = {.s = &some,
                             .way = way,
                             .c = wait ? waiting : io->c,
                             .num_threads = on->num_threads,
                             .deepest = deepest};
    some.scaled = s->scaled && !wait; /* sums that wait are scaled at the end */
    if (wait) some.out = F32;
    for (size_t p = 0; p < parts; p++) {
        size_t begin = steps * p / parts * PANEL, end = least(steps * (p + 1) / parts * PANEL, K);
        some.K = (int)(end - begin), some.accumulate = p > 0 || (s->accumulate && !wait);
        part.d = p > 0 ? part.c : io->d;
        part.a = lines_part(left, begin, end), part.b = lines_part(right, begin, end);
        KERNEL(gemm_multiply)(&part, memory);
    }
    if (wait) finish(s, waiting, io->d, io->c, on->num_threads);
    return STATUS_OK;
}
