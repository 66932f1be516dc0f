/* test_hipblaslt_gemm.c compares its results with our kernels'. */
// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/gpu.h"
#include "backends/gpu/vendor/rocblas_gemm.h"
#include "base/text.h"
#include "tensor/queue.h"

static bool has_device(void)
{
    int count = 0;
    return !GPU_NAME(count)(&count) && count > 0;
}

/* With a GPU: the real library, if it is installed. */
TEST(rocblas_gemm_check_accepts_every_kind_of_gemm_that_the_program_has)
{
    struct rocblas_gemm *r;
    struct queue *queue;
    if (!has_device()) skip();
    CHECK_STATUS(OK, GPU_NAME(open)(&queue, 0));
    enum status st = rocblas_gemm_open(&r, queue);
    for (unsigned variant = 0; !st && variant < 3 * 4; variant++) {
        struct gemm g = {8, 8, 8, .transpose_a = variant & 1, .transpose_b = variant & 2};
        g.a = g.b = variant / 4 ? GEMM_BF16 : GEMM_F32;
        g.out = variant / 4 == 1 ? BF16 : F32;
        queue->sizing = variant & 1; /* it computes in sizing passes, too */
        CHECK_STATUS(OK, rocblas_gemm_check(r, &g, queue));
        CHECK(queue->sizing == (variant & 1) && !queue->scratch.peak);
    }
    rocblas_gemm_close(r);
    GPU_NAME(close)(queue);
    if (st) skip();
}

#if !defined(GPU_HIP) /* calls to the stub of rocBLAS */
#include "backends/gpu/vendor/stub_rocblas.h"

TEST(rocblas_gemm_check_finds_wrong_results_once)
{
    struct rocblas_gemm *r;
    struct queue *queue;
    struct gemm g = {8, 8, 8, .a = GEMM_BF16, .b = GEMM_BF16, .out = F32};
    CHECK_STATUS(OK, GPU_NAME(open)(&queue, 0));
    CHECK_STATUS(OK, rocblas_gemm_open(&r, queue));
    stub_rocblas_miscount(true);
    int ran = stub_rocblas.ran;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(UNSUPPORTED, rocblas_gemm_check(r, &g, queue));
        CHECK_MESSAGE("rocBLAS computes");
    }
    CHECK(stub_rocblas.ran == ran + 1);
    stub_rocblas_miscount(false);
    g.transpose_a = true;
    CHECK_STATUS(OK, rocblas_gemm_check(r, &g, queue));
    rocblas_gemm_close(r);
    GPU_NAME(close)(queue);
}

TEST(rocblas_gemm_library_is_its_version_without_the_commit)
{
    struct text name = {0};
    CHECK_STATUS(OK, rocblas_gemm_library(&name));
    CHECK(!strcmp(name.data, "rocBLAS 4.4.0"));
    stub_rocblas_hide(true);
    CHECK_STATUS(UNSUPPORTED, rocblas_gemm_library(&name));
    stub_rocblas_hide(false);
    text_release(&name);
}
#endif
