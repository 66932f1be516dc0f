// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/stub_cublaslt.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/text.h"
#include "tensor/dtype.h"

#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct stub_matmul {
    cublasOperation_t transpose_a, transpose_b;
    int32_t pointer_mode;
    int8_t fast;
    int32_t multiprocessors;
    const float *a_scale, *b_scale;
};
struct stub_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading;
};
struct stub_preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4];
};
/* The words of an algorithm's opaque data. */
enum { WORD_ID, WORD_ALIGNMENT, WORD_MARK, WORD_REDUCTION = STUB_WORD_REDUCTION, MARK = 0x57AB };

struct stub_cublaslt stub_cublaslt;
static bool first_is_broken, is_hidden;
void stub_cublaslt_break(bool broken) { first_is_broken = broken; }
void stub_cublaslt_hide(bool hidden) { is_hidden = hidden; }

enum status cublaslt_load(void)
{
    if (is_hidden) FAIL(UNSUPPORTED, "cuBLASLt is not installed: hidden by a test");
    return STATUS_OK;
}

static size_t workspace_of(uint64_t id) { return id == 1 ? 1000 : 0; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = heap(1);
    stub_cublaslt.handles++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    stub_cublaslt.handles--;
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "the stub failed" : "rejected by the stub";
}
size_t cublasLtGetVersion(void) { return 1; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    *out = heap(sizeof **out);
    stub_cublaslt.matmuls++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmul)
{
    free(matmul);
    stub_cublaslt.matmuls--;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    const struct {
        cublasLtMatmulDescAttributes_t what;
        void *to;
        size_t bytes;
    } rows[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &p->transpose_a, sizeof p->transpose_a},
        {CUBLASLT_MATMUL_DESC_TRANSB, &p->transpose_b, sizeof p->transpose_b},
        {CUBLASLT_MATMUL_DESC_POINTER_MODE, &p->pointer_mode, sizeof p->pointer_mode},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &p->fast, sizeof p->fast},
        {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &p->multiprocessors, sizeof p->multiprocessors},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->a_scale, sizeof p->a_scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->b_scale, sizeof p->b_scale}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].what == what && rows[i].bytes == bytes) {
            memcpy(rows[i].to, value, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading)
{
    *out = heap(sizeof **out);
    **out = (struct stub_layout){type, rows, columns, leading};
    stub_cublaslt.layouts++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    stub_cublaslt.layouts--;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = heap(sizeof **out);
    **out = (struct stub_preference){.reductions = CUBLASLT_REDUCTION_SCHEME_MASK,
                                     .alignment = {256, 256, 256, 256}};
    stub_cublaslt.preferences++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    stub_cublaslt.preferences--;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    int which = (int)what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof preference->workspace)
        memcpy(&preference->workspace, value, bytes);
    else if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
             bytes == sizeof preference->reductions)
        memcpy(&preference->reductions, value, bytes);
    else if (which >= 0 && which < 4 && bytes == sizeof preference->alignment[0])
        memcpy(&preference->alignment[which], value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* One D = alpha scale op(A) op(B) + beta C. */
struct stub_call {
    struct stub_matmul matmul;
    struct stub_layout a_layout, b_layout, d_layout;
    uint64_t m, n, k;
    const void *a, *b, *c;
    void *d;
    unsigned char *workspace;
    size_t workspace_bytes;
    const float *alpha, *beta; /* in device memory, or NULL */
    float host_alpha, host_beta;
};

static bool is_fp8(cudaDataType_t type) { return type >= CUDA_R_8F_E4M3; }

static bool has_matching_sizes(struct stub_call *w)
{
    bool transpose_a = w->matmul.transpose_a == CUBLAS_OP_T,
         transpose_b = w->matmul.transpose_b == CUBLAS_OP_T;
    const struct stub_layout *a = &w->a_layout, *b = &w->b_layout, *d = &w->d_layout;
    w->m = transpose_a ? a->columns : a->rows, w->k = transpose_a ? a->rows : a->columns;
    w->n = transpose_b ? b->rows : b->columns;
    if (w->k != (transpose_b ? b->columns : b->rows) || d->rows != w->m || d->columns != w->n)
        return false;
    if (a->leading < (int64_t)a->rows || b->leading < (int64_t)b->rows ||
        d->leading < (int64_t)d->rows)
        return false;
    if (!is_fp8(a->type) && !is_fp8(b->type)) return a->type == b->type;
    return transpose_a && !transpose_b && is_fp8(a->type) && is_fp8(b->type) &&
           !(a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2);
}

static float fp8_value(unsigned char x, int mantissa, int bias)
{
    int exponent = (x & 0x7F) >> mantissa, low = x & ((1 << mantissa) - 1);
    float size = (float)(exponent ? low + (1 << mantissa) : low);
    size = ldexpf(size, (exponent ? exponent : 1) - bias - mantissa);
    return x & 0x80 ? -size : size;
}

static float number(const void *x, uint64_t at, cudaDataType_t type)
{
    switch (type) {
    case CUDA_R_32F: return ((const float *)x)[at];
    case CUDA_R_16BF: return bf16_to_f32(((const bf16 *)x)[at]);
    case CUDA_R_8F_E4M3: return fp8_value(((const unsigned char *)x)[at], 3, 7);
    case CUDA_R_8F_E5M2: break;
    }
    return fp8_value(((const unsigned char *)x)[at], 2, 15);
}

static float element(const void *x, const struct stub_layout *l, bool transposed, uint64_t row,
                     uint64_t column)
{
    uint64_t leading = (uint64_t)l->leading;
    return number(x, transposed ? row * leading + column : column * leading + row, l->type);
}

/* A kernel of one thread. */
static void multiply(const void *closure)
{
    const struct stub_call *w = closure;
    const struct stub_matmul *p = &w->matmul;
    float alpha = w->alpha ? *w->alpha : w->host_alpha, beta = w->beta ? *w->beta : w->host_beta;
    if (p->a_scale) alpha *= *p->a_scale;
    if (p->b_scale) alpha *= *p->b_scale;
    memset(w->workspace, 0xFF, w->workspace_bytes);
    for (uint64_t column = 0; column < w->n; column++)
        for (uint64_t row = 0; row < w->m; row++) {
            uint64_t at = column * (uint64_t)w->d_layout.leading + row;
            float sum = 0;
            for (uint64_t k = 0; k < w->k; k++)
                sum += element(w->a, &w->a_layout, p->transpose_a == CUBLAS_OP_T, row, k) *
                       element(w->b, &w->b_layout, p->transpose_b == CUBLAS_OP_T, k, column);
            sum *= alpha;
            if (beta != 0) sum += beta * number(w->c, at, w->d_layout.type);
            if (w->d_layout.type == CUDA_R_32F)
                ((float *)w->d)[at] = sum;
            else
                ((bf16 *)w->d)[at] = bf16_from_f32(sum);
        }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t proposed[],
                                              int *count)
{
    struct stub_call w = {.matmul = *matmul, .a_layout = *a, .b_layout = *b, .d_layout = *d};
    (void)handle, (void)c;
    stub_cublaslt.num_heuristics++, stub_cublaslt.multiprocessors = matmul->multiprocessors;
    *count = 0;
    if (!has_matching_sizes(&w)) return CUBLAS_STATUS_INVALID_VALUE;
    if (is_fp8(a->type) && !(matmul->a_scale && matmul->b_scale))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (w.k == STUB_UNSUPPORTED_K) return CUBLAS_STATUS_NOT_SUPPORTED;
    stub_cublaslt.other_reductions +=
        preference->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (uint64_t id = 0; id < STUB_ALGORITHMS && *count < most; id++) {
        if (workspace_of(id) > preference->workspace) continue;
        proposed[*count] = (cublasLtMatmulHeuristicResult_t){
            .algo = {{id, preference->alignment[0], MARK}}, .workspaceSize = workspace_of(id)};
        ++*count;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    struct stub_call w = {.matmul = *matmul, .a_layout = *a, .b_layout = *b, .d_layout = *d};
    (void)handle, (void)c;
    if (!has_matching_sizes(&w) || algorithm->data[WORD_MARK] != MARK)
        return CUBLAS_STATUS_INVALID_VALUE;
    result->workspaceSize = workspace_of(algorithm->data[WORD_ID]);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value, size_t bytes, size_t *written)
{
    uint32_t scheme = (uint32_t)algorithm->data[WORD_REDUCTION];
    if (what != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME || bytes != sizeof scheme)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &scheme, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, void *stream)
{
    struct stub_call w = {.matmul = *matmul,
                          .a_layout = *a_layout,
                          .b_layout = *b_layout,
                          .d_layout = *d_layout,
                          .a = a,
                          .b = b,
                          .c = c,
                          .d = d,
                          .workspace = workspace};
    uint64_t id = algorithm->data[WORD_ID];
    uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    w.workspace_bytes = id < STUB_ALGORITHMS ? workspace_of(id) : 0;
    bool valid = handle && has_matching_sizes(&w) && c_layout == d_layout && id < STUB_ALGORITHMS &&
                 algorithm->data[WORD_MARK] == MARK && workspace_bytes >= w.workspace_bytes &&
                 all % algorithm->data[WORD_ALIGNMENT] == 0 && (uintptr_t)workspace % 256 == 0;
    if (!valid || (id == 0 && first_is_broken)) {
        stub_cublaslt.failed++;
        return valid ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_INVALID_VALUE;
    }
    if (matmul->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE)
        w.alpha = alpha, w.beta = beta;
    else
        memcpy(&w.host_alpha, alpha, sizeof w.host_alpha),
            memcpy(&w.host_beta, beta, sizeof w.host_beta);
    stub_cublaslt.ran[id]++, stub_cublaslt.fast_accumulation += matmul->fast;
    struct kernel_launch kernel = {.name = "cublasLtMatmul",
                                   .grid = {1, 1, 1},
                                   .block = {1, 1, 1},
                                   .closure_bytes = sizeof w,
                                   .warp_size = 32,
                                   .body = multiply,
                                   .closure = &w};
    emulator_launch(&kernel, stream);
    return CUBLAS_STATUS_SUCCESS;
}
