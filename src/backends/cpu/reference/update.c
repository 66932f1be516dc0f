// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"
#include "base/rng.h"

#include <math.h>

enum { BLOCK = 4096 }; /* elements of one partial sum */

static double square(float x) { return (double)x * (double)x; }

enum status reference_sum_squares(const struct sum_squares *a, const struct sum_squares_io *io,
                                  struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    for (size_t s = 0; s < sum_squares_count(a); s++) {
        double total = 0;
        for (size_t begin = 0; begin < a->n; begin += BLOCK) {
            double sum = 0;
            for (size_t i = begin; i < a->n && i < begin + BLOCK; i++)
                sum += square(element_get(io->x_Sn, s * a->n + i, a->dtype));
            total += sum;
        }
        io->sum_S[s] = total;
    }
    return STATUS_OK;
}

/* Random bits for the stochastic rounding of the i-th second moment. */
static uint16_t rounding_bits(const struct adamw *a, size_t i)
{
    uint64_t at = adamw_position(a, i);
    struct rng_block b = rng_bits(a->seed, RNG_MOMENTS, (uint64_t)a->step, at / ADAMW_BLOCK);
    return (uint16_t)(b.bits[at % ADAMW_BLOCK / 2] >> 16 * (at % 2));
}

static void store_second_moment(const struct adamw *a, void *v_n, size_t i, float v)
{
    if (a->moments == F32)
        ((float *)v_n)[i] = v;
    else
        ((bf16 *)v_n)[i] = bf16_from_f32_stochastic(v, rounding_bits(a, i));
}

/* With explicit FMAs, so that a compiler that peels iterations off the loop does not contract them
 * in another way: an element's result must not depend on where in its rank's shard it is. */
enum status reference_adamw(const struct adamw *a, const struct adamw_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    const struct adamw_coefficients c = adamw_coefficients_of(a);
    bf16 *half = io->copy_n;
    for (size_t i = 0; i < a->n; i++) {
        float g = element_get(io->g_n, i, a->gradients) * c.scale;
        float w = a->split ? split_to_f32(half[i], io->low_n[i]) : io->w_n[i];
        float m = fmaf(c.new1, g, c.beta1 * element_get(io->m_n, i, a->moments));
        float v = fmaf(c.new2 * g, g, c.beta2 * element_get(io->v_n, i, a->moments));
        w = fmaf(c.keep, w, -(c.rate * m / fmaf(sqrtf(v), c.root, c.eps)));
        element_set(io->m_n, i, a->moments, m), store_second_moment(a, io->v_n, i, v);
        if (a->split) {
            split_from_f32(w, &half[i], &io->low_n[i]);
            continue;
        }
        io->w_n[i] = w;
        if (io->copy_n) element_set(io->copy_n, i, a->copy_dtype, w);
    }
    return STATUS_OK;
}

enum status reference_axpby(const struct axpby *a, const struct axpby_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    float alpha = (float)a->alpha, beta = (float)a->beta;
    for (size_t i = 0; i < a->n; i++)
        io->z_n[i] = fmaf(alpha, io->x_n[i], beta != 0 ? beta * io->y_n[i] : 0);
    return STATUS_OK;
}

enum status reference_divide_by_norm(const struct divide_by_norm *a,
                                     const struct divide_by_norm_io *io, struct queue *queue)
{
    double squares;
    const struct sum_squares all = {.n = a->n};
    TRY(reference_sum_squares(&all, &(struct sum_squares_io){io->x_n, &squares}, queue));
    if (queue->sizing) return STATUS_OK;
    const float factor = (float)(1 / fmax(sqrt(squares), a->min_norm));
    for (size_t i = 0; i < a->n; i++) element_set(io->y_n, i, a->to, factor * io->x_n[i]);
    return STATUS_OK;
}

enum status reference_matrix_polynomial(const struct matrix_polynomial *p,
                                        const struct matrix_polynomial_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    const float a = (float)p->a, b = (float)p->b, c = (float)p->c;
    const size_t n = (size_t)p->n;
    for (size_t i = 0; i < n * n; i++) {
        float y = fmaf(c, io->square_nn[i], b * element_get(io->x_nn, i, p->dtype));
        element_set(io->x_nn, i, p->dtype, i % (n + 1) ? y : y + a);
    }
    return STATUS_OK;
}

enum status reference_update_ema(const struct update_ema *a, const struct update_ema_io *io,
                                 struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    float rate = (float)(1 - a->decay);
    for (size_t i = 0; i < a->n; i++) {
        float w = a->split ? split_to_f32(io->half_n[i], io->low_n[i]) : io->w_n[i];
        io->ema_n[i] = fmaf(rate, w - io->ema_n[i], io->ema_n[i]);
    }
    return STATUS_OK;
}

enum status reference_apply_update(const struct apply_update *a, const struct apply_update_io *io,
                                   struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    float keep = (float)a->keep, rate = (float)a->rate;
    bf16 *half = io->copy_n;
    for (size_t i = 0; i < a->n; i++) {
        float w = a->split ? split_to_f32(half[i], io->low_n[i]) : io->w_n[i];
        w = fmaf(keep, w, -(rate * io->u_n[i]));
        if (a->split) {
            split_from_f32(w, &half[i], &io->low_n[i]);
            continue;
        }
        io->w_n[i] = w;
        if (io->copy_n) element_set(io->copy_n, i, a->copy_dtype, w);
    }
    return STATUS_OK;
}

enum status reference_cast(const struct cast *a, const struct cast_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    const float scale = cast_scale(a);
    for (size_t row = 0; row < (a->rows ? a->rows : 1); row++)
        for (size_t i = 0; i < a->n; i++) {
            size_t from = row * a->from_stride + i, to = row * a->to_stride + i;
            float old = a->accumulate ? element_get(io->y_n, to, a->to) : 0;
            element_set(io->y_n, to, a->to, old + scale * element_get(io->x_n, from, a->from));
        }
    return STATUS_OK;
}

enum status reference_unsplit(const struct unsplit *a, const struct unsplit_io *io,
                              struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    for (size_t i = 0; i < a->n; i++) io->y_n[i] = split_to_f32(io->half_n[i], io->low_n[i]);
    return STATUS_OK;
}
