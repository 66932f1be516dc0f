/* float8.c (cpu) -- FP8 scaling and rounding on the bits of f32: as integers, the bits of |x| are
 * ordered as |x| is, with NaN above all. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/float8.h"

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "ops/fused_quantize.h"

enum { BLOCK = 4096 }; /* elements of one work item */

static uint32_t amax_bf16(const bf16 *x, size_t n)
{
    uint16_t max_bits = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t magnitude = x[i] & 0x7FFFu;
        max_bits = magnitude > max_bits ? magnitude : max_bits;
    }
    return (uint32_t)max_bits << 16;
}

static uint32_t amax_f32(const float *x, size_t n)
{
    uint32_t max_bits = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude;
        memcpy(&magnitude, x + i, sizeof magnitude);
        magnitude &= 0x7FFFFFFFu;
        max_bits = magnitude > max_bits ? magnitude : max_bits;
    }
    return max_bits;
}

enum status KERNEL(amax)(const struct amax *a, const struct amax_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = (a->n + BLOCK - 1) / BLOCK;
    uint32_t max_bits = 0;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads) reduction(max : max_bits)
    for (size_t block = 0; block < blocks; block++) {
        size_t at = block * BLOCK, n = a->n - at < BLOCK ? a->n - at : BLOCK;
        uint32_t block_max = a->dtype == F32 ? amax_f32((const float *)io->x_n + at, n)
                                             : amax_bf16((const bf16 *)io->x_n + at, n);
        max_bits = block_max > max_bits ? block_max : max_bits;
    }
    memcpy(io->amax, &max_bits, sizeof max_bits);
    return STATUS_OK;
}

enum status KERNEL(find_scale)(const struct find_scale *a, const struct find_scale_io *io,
                               struct queue *queue)
{
    TRY(reference_find_scale(a, io, queue));
    return STATUS_OK;
}

/* The model stores what it quantizes on a CPU. */
enum status KERNEL(fused_amax)(const struct fused_amax *a, const struct fused_amax_io *io,
                               struct queue *queue)
{
    TRY(reference_fused_amax(a, io, queue));
    return STATUS_OK;
}

enum status KERNEL(fused_quantize)(const struct fused_quantize *a,
                                   const struct fused_quantize_io *io, struct queue *queue)
{
    TRY(reference_fused_quantize(a, io, queue));
    return STATUS_OK;
}

/* In f32 bits: dropped mantissa bits, largest and smallest normal value; adding and subtracting
 * magic rounds a subnormal to a multiple of the smallest. */
struct float8_format {
    uint32_t dropped, largest, min_normal;
    float magic;
};
static const struct float8_format formats[] = {
    [E4M3] = {20, 0x43E00000u, 0x3C800000u, 24576}, /* 448, 2^-6; 1.5 * 2^(23-9) */
    [E5M2] = {21, 0x47600000u, 0x38800000u, 192},   /* 57344, 2^-14; 1.5 * 2^(23-16) */
};

static inline bf16 round_to_float8(struct float8_format f, float x)
{
    uint32_t bits, small;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits & 0x80000000u, magnitude = bits & 0x7FFFFFFFu;
    uint32_t bounded = magnitude > f.largest ? f.largest : magnitude;
    uint32_t half = (1u << (f.dropped - 1)) - 1 + (bounded >> f.dropped & 1);
    uint32_t normal = (bounded + half) >> f.dropped << f.dropped;
    float subnormal;
    memcpy(&subnormal, &bounded, sizeof subnormal);
    subnormal = subnormal + f.magic - f.magic;
    memcpy(&small, &subnormal, sizeof small);
    uint32_t rounded = bounded < f.min_normal ? small : normal;
    return (bf16)((magnitude > 0x7F800000u ? 0x7FC00000u : rounded | sign) >> 16);
}

static void quantize_block(struct float8_format f, float scale, const float *x, bf16 *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = round_to_float8(f, scale * x[i]);
}

enum status KERNEL(quantize)(const struct quantize *a, const struct quantize_io *io,
                             struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = (a->n + BLOCK - 1) / BLOCK;
    const struct float8_format f = formats[a->to];
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        size_t at = block * BLOCK, n = a->n - at < BLOCK ? a->n - at : BLOCK;
        float x[BLOCK];
        vector_load(io->x_n, at, a->dtype, n, x);
        quantize_block(f, io->scale->scale, x, io->y_n + at, n);
    }
    return STATUS_OK;
}
