// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <math.h>

enum status rope(const struct ops *ops, const struct rope *a, const struct rope_io *io,
                 struct queue *queue)
{
    if (a->B < 1 || a->T < 1 || a->H < 1 || a->K < 2 || a->K % 2)
        FAIL(SHAPE, "rope: B %d, T %d, H %d, K %d: each must be at least 1, and K even", a->B, a->T,
             a->H, a->K);
    if (a->first < 0 || a->stride < (size_t)a->H * (size_t)a->K)
        FAIL(
            SHAPE,
            "rope: first position %d must not be negative, and stride %zu not below %d heads of %d",
            a->first, a->stride, a->H, a->K);
    OP_RUN(rope);
}

static double scale_frequency(double frequency, const struct rope_scaling *s)
{
    double wavelength = 2 * 3.14159265358979323846 / frequency, context = s->original_context;
    if (wavelength < context / s->high_frequency_factor) return frequency;
    if (wavelength > context / s->low_frequency_factor) return frequency / s->factor;
    double part = (context / wavelength - s->low_frequency_factor) /
                  (s->high_frequency_factor - s->low_frequency_factor);
    return (1 - part) * frequency / s->factor + part * frequency;
}

double rope_frequency(int j, int K, double theta, const struct rope_scaling *scaling)
{
    double frequency = pow(theta, -2.0 * j / K);
    return scaling && scaling->factor > 0 ? scale_frequency(frequency, scaling) : frequency;
}

void rope_table(int T, const struct rope_angles *angles, float *cos_TJ, float *sin_TJ)
{
    int J = angles->K / 2;
    for (int j = 0; j < J; j++) {
        /* position * f in f32, as in Transformers: it matters for large positions. */
        float f = (float)rope_frequency(j, angles->K, angles->theta, angles->scaling);
        for (int t = 0; t < T; t++) {
            size_t at = (size_t)t * (size_t)J + (size_t)j;
            float angle = (float)t * f;
            cos_TJ[at] = (float)cos((double)angle);
            sin_TJ[at] = (float)sin((double)angle);
        }
    }
}
