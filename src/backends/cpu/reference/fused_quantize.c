/* fused_quantize.c (cpu reference) -- runs the unfused reference ops over a temporary tensor. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_quantize.h"

#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"
#include "base/heap.h"
#include "ops/rmsnorm.h"
#include "ops/swiglu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The normalized row with the rstd that is given. */
static void scale_rows(const struct fused_quantize *a, const struct fused_quantize_io *io, void *to)
{
    for (size_t i = 0; i < (size_t)a->N * (size_t)a->C; i++) {
        float x = element_get(io->x, i, a->dtype) * io->rstd_N[i / (size_t)a->C];
        if (a->dtype == BF16) x = bf16_to_f32(bf16_from_f32(x));
        element_set(to, i, a->dtype, x * element_get(io->w_C, i % (size_t)a->C, a->dtype));
    }
}

/* The result of the op, in a->dtype; the caller frees it. */
static enum status compute(const struct fused_quantize *a, const struct fused_quantize_io *io,
                           struct queue *queue, void **out)
{
    struct swiglu swiglu = {.N = a->N, .F = a->C, .dtype = a->dtype};
    size_t n = (size_t)a->N * fused_columns(a->of, a->C);
    void *result = *out = heap(n * dtype_bytes(a->dtype));
    switch (a->of) {
    case FUSED_TENSOR:
        for (size_t i = 0; i < n; i++)
            element_set(result, i, a->dtype, element_get(io->x, i, a->dtype));
        break;
    case FUSED_RMSNORM: scale_rows(a, io, result); break;
    case FUSED_SWIGLU:
        return reference_swiglu_forward(&swiglu, &(struct swiglu_fwd){io->x, result, NULL}, queue);
    case FUSED_SWIGLU_GRAD:
        return reference_swiglu_backward(
            &swiglu, &(struct swiglu_bwd){io->x, io->dout_NF, result, NULL}, queue);
    case FUSED_FP8: BUG_IF(true);
    }
    return STATUS_OK;
}

static float amax_of(const void *x, size_t n, enum dtype dtype, bool ignore_nan)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(element_get(x, i, dtype));
        if (isnan(size) && !ignore_nan) return size;
        if (size > largest) largest = size;
    }
    return largest;
}

static void raise_amax(float *amax, float by)
{
    if (isnan(by) || by > *amax) *amax = by;
}

enum status reference_fused_amax(const struct fused_amax *a, const struct fused_amax_io *io,
                                 struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t n = (size_t)a->N * fused_columns(a->of, a->C);
    void *result = NULL;
    enum status st = STATUS_OK;
    if (a->of == FUSED_RMSNORM) {
        struct rmsnorm norm = {.N = a->N, .D = a->C, .eps = a->eps, .dtype = a->dtype};
        struct rmsnorm_fwd norm_io = {io->x, io->w_C, NULL, io->rstd_N, NULL};
        norm_io.y_ND = result = heap(n * dtype_bytes(a->dtype));
        TRY_OUT(reference_rmsnorm_forward(&norm, &norm_io, queue));
    } else {
        struct fused_quantize op = {.of = a->of, .N = a->N, .C = a->C, .dtype = a->dtype};
        struct fused_quantize_io inputs = {.x = io->x, .w_C = io->w_C, .dout_NF = io->dout_NF};
        TRY_OUT(compute(&op, &inputs, queue, &result));
    }
    raise_amax(io->amax, amax_of(result, n, a->dtype, false));
out:
    free(result);
    return st;
}

enum status reference_fused_quantize(const struct fused_quantize *a,
                                     const struct fused_quantize_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t n = (size_t)a->N * fused_columns(a->of, a->C);
    struct quantize op = {.n = n, .dtype = a->dtype, .to = a->to};
    struct quantize_io quantized = {NULL, io->y, io->scale ? io->scale : io->find.scale};
    void *result = NULL;
    enum status st = STATUS_OK;
    if (a->of == FUSED_FP8) {
        memmove(io->y, io->x, n * sizeof *io->y); /* bf16 values have one storage order */
        return STATUS_OK;
    }
    TRY_OUT(compute(a, io, queue, &result));
    if (!io->scale)
        TRY_OUT(reference_find_scale(&(struct find_scale){a->to, a->amaxes}, &io->find, queue));
    if (io->scale && io->amax) raise_amax(io->amax, amax_of(result, n, a->dtype, true));
    quantized.x_n = result;
    TRY_OUT(reference_quantize(&op, &quantized, queue));
out:
    free(result);
    return st;
}
