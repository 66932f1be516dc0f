// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/stub_cublaslt.h"

#include "backends/gpu/emulator/emulator.h"
#include "base/text.h"
#include "tensor/dtype.h"

#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct stub_product {
    cublasOperation_t turn_a, turn_b;
    int32_t where;
    int8_t fast;
    const float *a_scale, *b_scale;
};
struct stub_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading;
};
struct stub_wish {
    uint64_t workspace;
    uint32_t alignment[4];
};
/* Words of an algorithm. */
enum { WORD_ID, WORD_ALIGNMENT, WORD_MARK, MARK = 0x57AB };

struct stub_cublaslt stub_cublaslt;
static bool first_is_broken;
void stub_cublaslt_break(bool broken) { first_is_broken = broken; }

static size_t workspace_of(uint64_t id) { return id == 1 ? 1000 : 0; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *library)
{
    *library = heap(1);
    stub_cublaslt.libraries++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t library)
{
    free(library);
    stub_cublaslt.libraries--;
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "the stub failed" : "the stub refuses";
}
size_t cublasLtGetVersion(void) { return 1; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    *out = heap(sizeof **out);
    stub_cublaslt.products++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    free(product);
    stub_cublaslt.products--;
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
    } rows[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &p->turn_a, sizeof p->turn_a},
                {CUBLASLT_MATMUL_DESC_TRANSB, &p->turn_b, sizeof p->turn_b},
                {CUBLASLT_MATMUL_DESC_POINTER_MODE, &p->where, sizeof p->where},
                {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &p->fast, sizeof p->fast},
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
    **out = (struct stub_wish){.alignment = {256, 256, 256, 256}};
    stub_cublaslt.wishes++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish)
{
    free(wish);
    stub_cublaslt.wishes--;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    int which = (int)what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof wish->workspace)
        memcpy(&wish->workspace, value, bytes);
    else if (which >= 0 && which < 4 && bytes == sizeof wish->alignment[0])
        memcpy(&wish->alignment[which], value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- a product ------------------------------------------------------------------------------ */

/* D = alpha scale op(A) op(B) + beta C, and where all of it is. */
struct work {
    struct stub_product product;
    struct stub_layout a_layout, b_layout, d_layout;
    uint64_t m, n, k;
    const void *a, *b, *c;
    void *d;
    unsigned char *workspace;
    size_t workspace_bytes;
    const float *alpha, *beta; /* the device's, or NULL */
    float host_alpha, host_beta;
};

static bool is_eight_bits(cudaDataType_t type) { return type >= CUDA_R_8F_E4M3; }

static bool fits(struct work *w)
{
    bool turn_a = w->product.turn_a == CUBLAS_OP_T, turn_b = w->product.turn_b == CUBLAS_OP_T;
    const struct stub_layout *a = &w->a_layout, *b = &w->b_layout, *d = &w->d_layout;
    w->m = turn_a ? a->columns : a->rows, w->k = turn_a ? a->rows : a->columns;
    w->n = turn_b ? b->rows : b->columns;
    if (w->k != (turn_b ? b->columns : b->rows) || d->rows != w->m || d->columns != w->n)
        return false;
    if (a->leading < (int64_t)a->rows || b->leading < (int64_t)b->rows ||
        d->leading < (int64_t)d->rows)
        return false;
    if (!is_eight_bits(a->type) && !is_eight_bits(b->type)) return a->type == b->type;
    return turn_a && !turn_b && is_eight_bits(a->type) && is_eight_bits(b->type) &&
           !(a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2);
}

static float eight_bits(unsigned char x, int mantissa, int bias)
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
    case CUDA_R_8F_E4M3: return eight_bits(((const unsigned char *)x)[at], 3, 7);
    case CUDA_R_8F_E5M2: break;
    }
    return eight_bits(((const unsigned char *)x)[at], 2, 15);
}

static float element(const void *x, const struct stub_layout *l, bool turned, uint64_t row,
                     uint64_t column)
{
    uint64_t leading = (uint64_t)l->leading;
    return number(x, turned ? row * leading + column : column * leading + row, l->type);
}

/* One thread of the device does it all. */
static void multiply(const void *closure)
{
    const struct work *w = closure;
    const struct stub_product *p = &w->product;
    float alpha = w->alpha ? *w->alpha : w->host_alpha, beta = w->beta ? *w->beta : w->host_beta;
    if (p->a_scale) alpha *= *p->a_scale;
    if (p->b_scale) alpha *= *p->b_scale;
    memset(w->workspace, 0xFF, w->workspace_bytes);
    for (uint64_t column = 0; column < w->n; column++)
        for (uint64_t row = 0; row < w->m; row++) {
            uint64_t at = column * (uint64_t)w->d_layout.leading + row;
            float sum = 0;
            for (uint64_t k = 0; k < w->k; k++)
                sum += element(w->a, &w->a_layout, p->turn_a == CUBLAS_OP_T, row, k) *
                       element(w->b, &w->b_layout, p->turn_b == CUBLAS_OP_T, k, column);
            sum *= alpha;
            if (beta != 0) sum += beta * number(w->c, at, w->d_layout.type);
            if (w->d_layout.type == CUDA_R_32F)
                ((float *)w->d)[at] = sum;
            else
                ((bf16 *)w->d)[at] = bf16_from_f32(sum);
        }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t library,
                                              cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int most,
                                              cublasLtMatmulHeuristicResult_t proposed[],
                                              int *count)
{
    struct work w = {.product = *product, .a_layout = *a, .b_layout = *b, .d_layout = *d};
    (void)library, (void)c;
    stub_cublaslt.asked++;
    *count = 0;
    if (!fits(&w)) return CUBLAS_STATUS_INVALID_VALUE;
    if (w.k == STUB_UNKNOWN) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (uint64_t id = 0; id < STUB_ALGORITHMS && *count < most; id++) {
        if (workspace_of(id) > wish->workspace) continue;
        proposed[*count] = (cublasLtMatmulHeuristicResult_t){
            .algo = {{id, wish->alignment[0], MARK}}, .workspaceSize = workspace_of(id)};
        ++*count;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t library, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *is)
{
    struct work w = {.product = *product, .a_layout = *a, .b_layout = *b, .d_layout = *d};
    (void)library, (void)c;
    if (!fits(&w) || algorithm->data[WORD_MARK] != MARK) return CUBLAS_STATUS_INVALID_VALUE;
    is->workspaceSize = workspace_of(algorithm->data[WORD_ID]);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t library, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, void *stream)
{
    struct work w = {.product = *product,
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
    bool good = library && fits(&w) && c_layout == d_layout && id < STUB_ALGORITHMS &&
                algorithm->data[WORD_MARK] == MARK && workspace_bytes >= w.workspace_bytes &&
                all % algorithm->data[WORD_ALIGNMENT] == 0 && (uintptr_t)workspace % 256 == 0;
    if (!good || (id == 0 && first_is_broken)) {
        stub_cublaslt.failed++;
        return good ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_INVALID_VALUE;
    }
    if (product->where == CUBLASLT_POINTER_MODE_DEVICE)
        w.alpha = alpha, w.beta = beta;
    else
        memcpy(&w.host_alpha, alpha, sizeof w.host_alpha),
            memcpy(&w.host_beta, beta, sizeof w.host_beta);
    stub_cublaslt.ran[id]++, stub_cublaslt.fast += product->fast;
    struct gpu_emulator_kernel kernel = {.name = "cublasLtMatmul",
                                         .grid = {1, 1, 1},
                                         .block = {1, 1, 1},
                                         .closure_bytes = sizeof w,
                                         .wave = 32,
                                         .body = multiply,
                                         .closure = &w};
    gpu_emulator_launch(&kernel, stream);
    return CUBLAS_STATUS_SUCCESS;
}
