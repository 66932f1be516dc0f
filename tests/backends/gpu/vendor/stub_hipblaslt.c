// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/stub_hipblaslt.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/vendor/hipblaslt.h"
#include "base/text.h"
#include "tensor/dtype.h"

#include <stdlib.h>
#include <string.h>

struct hipblaslt_desc_data {
    int32_t transpose_a, transpose_b;
};
struct hipblaslt_layout_data {
    enum hipblaslt_type type;
    uint64_t rows, columns;
    int64_t leading;
};
struct hipblaslt_pref_data {
    uint64_t workspace;
};
enum { WORKSPACE = 1000, MARK = 0x5A };

struct stub_hipblaslt stub_hipblaslt;
static bool is_broken, is_hidden, refuses_all;
void stub_hipblaslt_break(bool broken) { is_broken = broken; }
static int version_number = 100401;
void stub_hipblaslt_refuse(bool refused) { refuses_all = refused; }
void stub_hipblaslt_hide(bool hidden) { is_hidden = hidden; }
void stub_hipblaslt_set_version(int version) { version_number = version; }

enum status hipblaslt_load(void)
{
    if (is_hidden) FAIL(UNSUPPORTED, "hipBLASLt is not installed: hidden by a test");
    return STATUS_OK;
}

enum hipblaslt_status hipblasLtCreate(hipblaslt_handle *out)
{
    *out = heap(1);
    stub_hipblaslt.handles++;
    return HIPBLASLT_SUCCESS;
}
enum hipblaslt_status hipblasLtDestroy(hipblaslt_handle lt)
{
    free(lt);
    stub_hipblaslt.handles--;
    return HIPBLASLT_SUCCESS;
}
enum hipblaslt_status hipblasLtGetVersion(hipblaslt_handle lt, int *version)
{
    *version = version_number;
    return lt ? HIPBLASLT_SUCCESS : HIPBLASLT_INVALID_VALUE;
}

enum hipblaslt_status hipblasLtMatmulDescCreate(hipblaslt_desc *out, enum hipblaslt_compute compute,
                                                enum hipblaslt_type scale)
{
    if (compute != HIPBLASLT_COMPUTE_32F || scale != HIPBLASLT_R_32F)
        return HIPBLASLT_INVALID_VALUE;
    *out = heap(sizeof **out);
    **out = (struct hipblaslt_desc_data){.transpose_a = 0};
    stub_hipblaslt.descriptors++;
    return HIPBLASLT_SUCCESS;
}
enum hipblaslt_status hipblasLtMatmulDescDestroy(hipblaslt_desc m)
{
    free(m);
    stub_hipblaslt.descriptors--;
    return HIPBLASLT_SUCCESS;
}
enum hipblaslt_status hipblasLtMatmulDescSetAttribute(hipblaslt_desc m,
                                                      enum hipblaslt_desc_attribute name,
                                                      const void *value, size_t bytes)
{
    if (bytes != sizeof(int32_t)) return HIPBLASLT_INVALID_VALUE;
    memcpy(name == HIPBLASLT_DESC_TRANSA ? &m->transpose_a : &m->transpose_b, value, bytes);
    return HIPBLASLT_SUCCESS;
}

enum hipblaslt_status hipblasLtMatrixLayoutCreate(hipblaslt_layout *out, enum hipblaslt_type type,
                                                  uint64_t rows, uint64_t columns, int64_t leading)
{
    *out = heap(sizeof **out);
    **out = (struct hipblaslt_layout_data){type, rows, columns, leading};
    stub_hipblaslt.layouts++;
    return HIPBLASLT_SUCCESS;
}
enum hipblaslt_status hipblasLtMatrixLayoutDestroy(hipblaslt_layout l)
{
    free(l);
    stub_hipblaslt.layouts--;
    return HIPBLASLT_SUCCESS;
}

enum hipblaslt_status hipblasLtMatmulPreferenceCreate(hipblaslt_pref *out)
{
    *out = heap(sizeof **out);
    (*out)->workspace = 0;
    stub_hipblaslt.preferences++;
    return HIPBLASLT_SUCCESS;
}
enum hipblaslt_status hipblasLtMatmulPreferenceDestroy(hipblaslt_pref p)
{
    free(p);
    stub_hipblaslt.preferences--;
    return HIPBLASLT_SUCCESS;
}
enum hipblaslt_status hipblasLtMatmulPreferenceSetAttribute(hipblaslt_pref p,
                                                            enum hipblaslt_pref_attribute name,
                                                            const void *value, size_t bytes)
{
    if (name != HIPBLASLT_PREF_MAX_WORKSPACE_BYTES || bytes != sizeof p->workspace)
        return HIPBLASLT_INVALID_VALUE;
    memcpy(&p->workspace, value, bytes);
    return HIPBLASLT_SUCCESS;
}

/* One D = alpha op(A) op(B) + beta C. */
struct stub_call {
    struct hipblaslt_desc_data desc;
    struct hipblaslt_layout_data a_layout, b_layout, d_layout;
    uint64_t m, n, k;
    const void *a, *b, *c;
    void *d;
    unsigned char *workspace;
    float alpha, beta;
};

static bool has_matching_sizes(struct stub_call *w)
{
    const struct hipblaslt_layout_data *a = &w->a_layout, *b = &w->b_layout, *d = &w->d_layout;
    bool transpose_a = w->desc.transpose_a == HIPBLASLT_OP_T,
         transpose_b = w->desc.transpose_b == HIPBLASLT_OP_T;
    if (!transpose_a && w->desc.transpose_a != HIPBLASLT_OP_N) return false;
    if (!transpose_b && w->desc.transpose_b != HIPBLASLT_OP_N) return false;
    w->m = transpose_a ? a->columns : a->rows, w->k = transpose_a ? a->rows : a->columns;
    w->n = transpose_b ? b->rows : b->columns;
    return w->k == (transpose_b ? b->columns : b->rows) && d->rows == w->m && d->columns == w->n &&
           a->type == b->type && a->leading >= (int64_t)a->rows && b->leading >= (int64_t)b->rows;
}

static float number(const void *x, uint64_t at, enum hipblaslt_type type)
{
    return type == HIPBLASLT_R_32F ? ((const float *)x)[at] : bf16_to_f32(((const bf16 *)x)[at]);
}

static float element(const void *x, const struct hipblaslt_layout_data *l, int32_t operation,
                     uint64_t row, uint64_t column)
{
    uint64_t leading = (uint64_t)l->leading;
    return number(x, operation == HIPBLASLT_OP_T ? row * leading + column : column * leading + row,
                  l->type);
}

/* A kernel of one thread. */
static void multiply(const void *closure)
{
    const struct stub_call *w = closure;
    memset(w->workspace, 0xFF, WORKSPACE);
    for (uint64_t column = 0; column < w->n; column++)
        for (uint64_t row = 0; row < w->m; row++) {
            uint64_t at = column * (uint64_t)w->d_layout.leading + row;
            float sum = 0;
            for (uint64_t k = 0; k < w->k; k++)
                sum += element(w->a, &w->a_layout, w->desc.transpose_a, row, k) *
                       element(w->b, &w->b_layout, w->desc.transpose_b, k, column);
            sum *= w->alpha;
            if (w->beta != 0) sum += w->beta * number(w->c, at, w->d_layout.type);
            if (w->d_layout.type == HIPBLASLT_R_32F)
                ((float *)w->d)[at] = sum;
            else
                ((bf16 *)w->d)[at] = bf16_from_f32(sum);
        }
}

enum hipblaslt_status hipblasLtMatmulAlgoGetHeuristic(hipblaslt_handle lt, hipblaslt_desc m,
                                                      hipblaslt_layout a, hipblaslt_layout b,
                                                      hipblaslt_layout c, hipblaslt_layout d,
                                                      hipblaslt_pref p, int max,
                                                      struct hipblaslt_result *results, int *count)
{
    struct stub_call w = {.desc = *m, .a_layout = *a, .b_layout = *b, .d_layout = *d};
    stub_hipblaslt.num_heuristics++;
    *count = 0;
    if (!lt || c != d || !has_matching_sizes(&w) || max < 1) return HIPBLASLT_INVALID_VALUE;
    if (w.k == STUB_HIP_UNSUPPORTED_K) return HIPBLASLT_NOT_SUPPORTED;
    if (p->workspace < WORKSPACE) return HIPBLASLT_SUCCESS;
    *results = (struct hipblaslt_result){.algorithm = {{MARK}, WORKSPACE}, .workspace = WORKSPACE};
    *count = 1;
    return HIPBLASLT_SUCCESS;
}

enum hipblaslt_status hipblasLtMatmul(hipblaslt_handle lt, hipblaslt_desc m, const void *alpha,
                                      const void *a, hipblaslt_layout a_layout, const void *b,
                                      hipblaslt_layout b_layout, const void *beta, const void *c,
                                      hipblaslt_layout c_layout, void *d, hipblaslt_layout d_layout,
                                      const struct hipblaslt_algorithm *algorithm, void *workspace,
                                      size_t workspace_bytes, void *stream)
{
    struct stub_call w = {.desc = *m,
                          .a_layout = *a_layout,
                          .b_layout = *b_layout,
                          .d_layout = *d_layout,
                          .a = a,
                          .b = b,
                          .c = c,
                          .d = d,
                          .workspace = workspace};
    uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    bool valid = lt && has_matching_sizes(&w) && c_layout == d_layout &&
                 algorithm->data[0] == MARK && workspace_bytes >= WORKSPACE &&
                 (all | (uintptr_t)workspace) % 16 == 0;
    if (!valid || is_broken) {
        stub_hipblaslt.failed++;
        return valid ? HIPBLASLT_EXECUTION_FAILED : HIPBLASLT_INVALID_VALUE;
    }
    if (refuses_all) return HIPBLASLT_INVALID_VALUE;
    memcpy(&w.alpha, alpha, sizeof w.alpha), memcpy(&w.beta, beta, sizeof w.beta);
    stub_hipblaslt.ran++;
    struct kernel_launch kernel = {.name = "hipblasLtMatmul",
                                   .grid = {1, 1, 1},
                                   .block = {1, 1, 1},
                                   .closure_bytes = sizeof w,
                                   .warp_size = 64,
                                   .body = multiply,
                                   .closure = &w};
    emulator_launch(&kernel, stream);
    return HIPBLASLT_SUCCESS;
}
