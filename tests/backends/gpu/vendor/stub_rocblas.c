// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/stub_rocblas.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/vendor/rocblas.h"
#include "base/text.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rocblas_context {
    void *stream;
    unsigned char *workspace;
    size_t bytes;
    enum rocblas_atomics atomics;
};

struct stub_rocblas stub_rocblas;
static bool is_hidden, is_wrong, is_broken;
void stub_rocblas_hide(bool hidden) { is_hidden = hidden; }
void stub_rocblas_miscount(bool wrong) { is_wrong = wrong; }
void stub_rocblas_break(bool broken) { is_broken = broken; }

enum status rocblas_load(void)
{
    if (is_hidden) FAIL(UNSUPPORTED, "rocBLAS is not installed: hidden by a test");
    return STATUS_OK;
}

enum rocblas_status rocblas_create_handle(rocblas_handle *out)
{
    *out = heap(sizeof **out);
    (*out)->atomics = ROCBLAS_ATOMICS_ALLOWED;
    stub_rocblas.handles++;
    stub_rocblas.allocates = true;
    return ROCBLAS_SUCCESS;
}
enum rocblas_status rocblas_destroy_handle(rocblas_handle h)
{
    free(h);
    stub_rocblas.handles--;
    return ROCBLAS_SUCCESS;
}
enum rocblas_status rocblas_set_stream(rocblas_handle h, void *stream)
{
    h->stream = stream;
    return ROCBLAS_SUCCESS;
}
enum rocblas_status rocblas_set_workspace(rocblas_handle h, void *at, size_t bytes)
{
    h->workspace = at, h->bytes = bytes;
    stub_rocblas.allocates = false;
    return ROCBLAS_SUCCESS;
}
enum rocblas_status rocblas_set_atomics_mode(rocblas_handle h, enum rocblas_atomics mode)
{
    h->atomics = mode;
    return ROCBLAS_SUCCESS;
}
enum rocblas_status rocblas_get_version_string(char *to, size_t bytes)
{
    static const char version[] = "4.4.0.f9d7a2c1";
    if (bytes < sizeof version) return ROCBLAS_INVALID_SIZE;
    memcpy(to, version, sizeof version);
    return ROCBLAS_SUCCESS;
}

/* One D = alpha op(A) op(B) + beta C. */
struct rocblas_product {
    const void *a, *b, *c;
    void *d;
    bool transpose_a, transpose_b, is_f32, is_result_f32, is_wrong;
    int m, n, k, a_leading, b_leading, c_leading;
    float alpha, beta;
    unsigned char *workspace;
    size_t bytes;
};

static float number(const void *x, int row, int column, int leading, bool is_f32)
{
    size_t at = (size_t)column * (size_t)leading + (size_t)row;
    return is_f32 ? ((const float *)x)[at] : bf16_to_f32(((const bf16 *)x)[at]);
}

static float multiply_element(const struct rocblas_product *p, int row, int column)
{
    float sum = 0;
    for (int k = 0; k < p->k; k++)
        sum += (p->transpose_a ? number(p->a, k, row, p->a_leading, p->is_f32)
                               : number(p->a, row, k, p->a_leading, p->is_f32)) *
               (p->transpose_b ? number(p->b, column, k, p->b_leading, p->is_f32)
                               : number(p->b, k, column, p->b_leading, p->is_f32));
    sum = p->alpha * sum + (p->is_wrong ? 1 : 0);
    if (p->beta != 0) sum += p->beta * number(p->c, row, column, p->c_leading, p->is_result_f32);
    return sum;
}

/* A kernel of one thread. */
static void multiply(const void *closure)
{
    const struct rocblas_product *p = closure;
    memset(p->workspace, 0xFF, p->bytes < 4096 ? p->bytes : 4096);
    for (int column = 0; column < p->n; column++)
        for (int row = 0; row < p->m; row++) {
            size_t at = (size_t)column * (size_t)p->c_leading + (size_t)row;
            float sum = multiply_element(p, row, column);
            if (p->is_result_f32)
                ((float *)p->d)[at] = sum;
            else
                ((bf16 *)p->d)[at] = bf16_from_f32(sum);
        }
}

enum rocblas_status
rocblas_gemm_ex(rocblas_handle h, enum rocblas_operation a_operation,
                enum rocblas_operation b_operation, int32_t m, int32_t n, int32_t k,
                const void *alpha, const void *a, enum rocblas_type a_type, int32_t a_leading,
                const void *b, enum rocblas_type b_type, int32_t b_leading, const void *beta,
                const void *c, enum rocblas_type c_type, int32_t c_leading, void *d,
                enum rocblas_type d_type, int32_t d_leading, enum rocblas_type compute_type,
                enum rocblas_algorithm algorithm, int32_t solution, uint32_t flags)
{
    struct rocblas_product p = {.a = a,
                                .b = b,
                                .c = c,
                                .d = d,
                                .transpose_a = a_operation == ROCBLAS_OPERATION_TRANSPOSE,
                                .transpose_b = b_operation == ROCBLAS_OPERATION_TRANSPOSE,
                                .is_f32 = a_type == ROCBLAS_F32_R,
                                .is_result_f32 = d_type == ROCBLAS_F32_R,
                                .is_wrong = is_wrong,
                                .m = m,
                                .n = n,
                                .k = k,
                                .a_leading = a_leading,
                                .b_leading = b_leading,
                                .c_leading = c_leading,
                                .workspace = h->workspace,
                                .bytes = h->bytes};
    bool is_sized = c_leading >= m && d_leading == c_leading &&
                    a_leading >= (p.transpose_a ? k : m) && b_leading >= (p.transpose_b ? n : k);
    bool is_typed = a_type == b_type && c_type == d_type && compute_type == ROCBLAS_F32_R &&
                    (a_type == ROCBLAS_BF16_R || d_type == ROCBLAS_F32_R);
    bool is_ready = h->stream && h->workspace && h->bytes && h->atomics != ROCBLAS_ATOMICS_ALLOWED;
    if (!is_sized || !is_typed || !is_ready || algorithm || solution || flags || is_broken) {
        stub_rocblas.failed++;
        return is_broken ? ROCBLAS_INTERNAL_ERROR : ROCBLAS_INVALID_VALUE;
    }
    if (k == STUB_ROC_UNSUPPORTED_K) return ROCBLAS_NOT_IMPLEMENTED;
    memcpy(&p.alpha, alpha, sizeof p.alpha), memcpy(&p.beta, beta, sizeof p.beta);
    stub_rocblas.ran++;
    stub_rocblas.workspace = h->bytes;
    struct kernel_launch kernel = {.name = "rocblas_gemm_ex",
                                   .grid = {1, 1, 1},
                                   .block = {1, 1, 1},
                                   .closure_bytes = sizeof p,
                                   .warp_size = 64,
                                   .body = multiply,
                                   .closure = &p};
    emulator_launch(&kernel, h->stream);
    return ROCBLAS_SUCCESS;
}
