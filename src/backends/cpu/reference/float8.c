/* float8.c (cpu reference) -- FP8 rounding by arithmetic; the optimized kernels work on bits. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/float8.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include <math.h>

enum status reference_amax(const struct amax *a, const struct amax_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    float largest = 0;
    for (size_t i = 0; i < a->n; i++) {
        float x = fabsf(element_get(io->x_n, i, a->dtype));
        if (isnan(x) || x > largest) largest = x;
        if (isnan(x)) break;
    }
    *io->amax = largest;
    return STATUS_OK;
}

enum status reference_find_scale(const struct find_scale *a, const struct find_scale_io *io,
                                 struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    float largest = io->amax[0], held = io->delayed ? *io->delayed : 0;
    for (int i = 1; i < a->amaxes; i++)
        if (isnan(io->amax[i]) || io->amax[i] > largest) largest = io->amax[i];
    if (io->running && largest > *io->running) *io->running = largest;
    io->scale->scale = held > 0 ? held : float8_current_scale(largest, a->to);
    io->scale->inverse = 1 / io->scale->scale;
    return STATUS_OK;
}

/* Rounds to a multiple of the ulp at x's exponent, which stops shrinking at the subnormals. */
static float round_to_float8(float x, enum float8 to)
{
    const int mantissa = to == E4M3 ? 3 : 2, min_exponent = to == E4M3 ? -6 : -14;
    float size = fminf(fabsf(x), float8_max(to));
    int exponent;
    if (isnan(x)) return x;
    frexpf(size, &exponent); /* size = f * 2^exponent, 0.5 <= f < 1 */
    int ulp_exponent = (exponent - 1 < min_exponent ? min_exponent : exponent - 1) - mantissa;
    return copysignf(ldexpf(nearbyintf(ldexpf(size, -ulp_exponent)), ulp_exponent), x);
}

enum status reference_quantize(const struct quantize *a, const struct quantize_io *io,
                               struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    for (size_t i = 0; i < a->n; i++) {
        float x = io->scale->scale * element_get(io->x_n, i, a->dtype);
        io->y_n[i] = bf16_from_f32(round_to_float8(x, a->to));
    }
    return STATUS_OK;
}
