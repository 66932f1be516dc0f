// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/gemm.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/vendor/hipblaslt.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "ops/float8.h"
#include "tensor/device.h"
#include "tensor/queue.h"

static bool has_device(void)
{
    int count = 0;
    return !GPU_NAME(count)(&count) && count > 0;
}

struct gemm_rig {
    struct queue *queue;
    struct arena memory;
    struct gemm g;
    struct gemm_io io;
    size_t result_bytes;
};

static void *upload(struct gemm_rig *r, size_t n, bool is_f32)
{
    float *wide = heap(n * sizeof *wide);
    bf16 *narrow = heap(n * sizeof *narrow);
    size_t bytes = n * (is_f32 ? sizeof *wide : sizeof *narrow);
    void *at = arena_alloc(&r->memory, bytes, 1);
    for (size_t i = 0; i < n; i++) {
        wide[i] = (float)rng_normal(7, RNG_TEST, 0, i);
        if (r->g.scaled) wide[i] = roundf(4 * wide[i]); /* so that sums are exact in any order */
        narrow[i] = bf16_from_f32(wide[i]);
    }
    CHECK_STATUS(OK, queue_copy(r->queue, at, is_f32 ? (void *)wide : narrow, bytes));
    free(wide), free(narrow);
    return at;
}

static void open_rig(struct gemm_rig *r, struct gemm g)
{
    const struct float8_scale scales[2] = {{3.3f, 0.3f}, {0.6f, 1.7f}};
    size_t M = (size_t)g.M, N = (size_t)g.N, K = (size_t)g.K;
    struct float8_scale *at;
    *r = (struct gemm_rig){.g = g, .result_bytes = M * N * dtype_bytes(g.out)};
    CHECK_STATUS(OK, GPU_NAME(open)(&r->queue, 0));
    CHECK_STATUS(OK, arena_init(&r->memory, (M * K + K * N + M * N) * sizeof(float) + 1024,
                                queue_device_allocator(r->queue)));
    r->io.a = upload(r, M * K, g.a == GEMM_F32), r->io.b = upload(r, K * N, g.b == GEMM_F32);
    r->io.d = r->io.c = upload(r, M * N, g.out == F32);
    at = arena_alloc(&r->memory, 2, sizeof *at);
    CHECK_STATUS(OK, queue_copy(r->queue, at, scales, sizeof scales));
    r->io.a_scale = at, r->io.b_scale = at + 1;
}

static void close_rig(struct gemm_rig *r)
{
    arena_release(&r->memory);
    GPU_NAME(gemm_close)(r->queue);
    GPU_NAME(close)(r->queue);
}

/* Returns the resulting C as f32 and restores its old contents. */
static float *run_gemm(struct gemm_rig *r, bool tiled)
{
    size_t n = (size_t)r->g.M * (size_t)r->g.N;
    unsigned char *old = heap(r->result_bytes), *new = heap(r->result_bytes);
    float *c = heap(n * sizeof *c);
    CHECK_STATUS(OK, queue_copy(r->queue, old, r->io.c, r->result_bytes));
    r->queue->sizing = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r->g, &(struct gemm_io){0}, r->queue));
    r->queue->sizing = false;
    size_t scratch = r->queue->scratch.peak;
    CHECK_STATUS(OK, arena_init(&r->queue->scratch, scratch, queue_device_allocator(r->queue)));
    CHECK_STATUS(OK, (tiled ? GPU_NAME(gemm_tiled) : GPU_NAME(gemm))(&r->g, &r->io, r->queue));
    CHECK(!r->queue->scratch.used);
    CHECK_STATUS(OK, queue_copy(r->queue, new, r->io.c, r->result_bytes));
    for (size_t i = 0; i < n; i++)
        c[i] = r->g.out == F32 ? ((float *)new)[i] : bf16_to_f32(((bf16 *)new)[i]);
    CHECK_STATUS(OK, queue_copy(r->queue, r->io.c, old, r->result_bytes));
    arena_release(&r->queue->scratch);
    free(old), free(new);
    return c;
}

static void compare(struct gemm g)
{
    struct gemm_rig r;
    open_rig(&r, g);
    float *tiled = run_gemm(&r, true), *library = run_gemm(&r, false);
    double error = 0, size = 0;
    for (size_t i = 0; i < (size_t)g.M * (size_t)g.N; i++) {
        double difference = (double)library[i] - (double)tiled[i];
        error += difference * difference, size += (double)tiled[i] * (double)tiled[i];
    }
    double tolerance = g.scaled ? 0 : g.out == BF16 ? 5e-3 : 1e-5;
    if (!(sqrt(error) <= tolerance * sqrt(size)))
        fail_msg("%d x %d x %d of type %d: error %g of %g", g.M, g.N, g.K, g.a, sqrt(error),
                 sqrt(size));
    free(tiled), free(library);
    close_rig(&r);
}

TEST(hipblaslt_matches_our_kernels)
{
    static const int sizes[][3] = {{64, 128, 32}, {32, 48, 80}, {7, 33, 65}};
    if (!has_device()) skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned variant = 0; variant < 3 * 8; variant++) {
            struct gemm g = {.M = sizes[i][0], .N = sizes[i][1], .K = sizes[i][2]};
            g.transpose_a = variant & 1, g.transpose_b = variant & 2, g.accumulate = variant & 4;
            g.a = g.b = variant / 8 ? GEMM_BF16 : GEMM_F32;
            g.out = variant / 8 == 1 ? BF16 : F32;
            compare(g);
        }
}

/* FP8 values are bf16 here: small integers, whose products and sums are exact. */
TEST(hipblaslt_computes_the_bits_of_our_kernels_for_scaled_gemms)
{
    static const int sizes[][3] = {{600, 64, 32}, {40, 24, 16}, {7, 33, 65}};
    if (!has_device()) skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned variant = 0; variant < 16; variant++)
            compare((struct gemm){.M = sizes[i][0],
                                  .N = sizes[i][1],
                                  .K = sizes[i][2],
                                  .transpose_a = variant & 1,
                                  .transpose_b = variant & 2,
                                  .accumulate = variant & 4,
                                  .scaled = true,
                                  .a = GEMM_BF16,
                                  .b = GEMM_BF16,
                                  .out = variant & 8 ? F32 : BF16});
}

#if !defined(GPU_HIP) /* calls to the stub of hipBLASLt */
#include "backends/gpu/vendor/stub_hipblaslt.h"
#include "backends/gpu/vendor/stub_rocblas.h"
#include "perf/gpu_scratch.h"

static const struct gemm usual = {
    32, 48, 64, .transpose_b = true, .a = GEMM_BF16, .b = GEMM_BF16, .out = BF16};

TEST(a_gemm_is_prepared_once_for_hipblaslt_and_everything_is_freed)
{
    struct gemm_rig r;
    open_rig(&r, usual);
    struct stub_hipblaslt before = stub_hipblaslt;
    for (int i = 0; i < 3; i++) free(run_gemm(&r, false));
    CHECK(stub_hipblaslt.num_heuristics == before.num_heuristics + 1);
    CHECK(stub_hipblaslt.ran == before.ran + 3);
    r.g.accumulate = true;
    free(run_gemm(&r, false));
    CHECK(stub_hipblaslt.descriptors == 2 && stub_hipblaslt.layouts == 6);
    CHECK(stub_hipblaslt.handles == 1);
    close_rig(&r);
    CHECK(!stub_hipblaslt.descriptors && !stub_hipblaslt.layouts && !stub_hipblaslt.handles);
    CHECK(!stub_hipblaslt.preferences && stub_hipblaslt.failed == before.failed);
}

TEST(our_kernels_compute_what_hipblaslt_does_not_support)
{
    struct stub_hipblaslt before = stub_hipblaslt;
    struct gemm g = usual;
    stub_rocblas_hide(true);
    g.K = STUB_HIP_UNSUPPORTED_K;
    compare(g);
    g.scaled = true;
    compare(g);
    stub_rocblas_hide(false);
    struct gemm_rig r;
    open_rig(&r, usual);
    r.g.M -= 1; /* so that the last row stays within the buffer */
    r.io.a = (const bf16 *)r.io.a + 1;
    float *tiled = run_gemm(&r, true), *ours = run_gemm(&r, false);
    CHECK(!memcmp(tiled, ours, (size_t)r.g.M * (size_t)r.g.N * sizeof *ours));
    free(tiled), free(ours);
    close_rig(&r);
    CHECK(stub_hipblaslt.ran == before.ran && stub_hipblaslt.failed == before.failed);
}

static int count_lines(const char *log, const char *level)
{
    static const char sentence[] = "GPU: hipBLASLt has no algorithm";
    int count = 0;
    for (const char *at = log; (at = strstr(at, sentence)); at++)
        count += (size_t)(at - log) >= strlen(level) &&
                 !memcmp(at - strlen(level), level, strlen(level));
    return count;
}

TEST(only_the_first_gemm_without_an_algorithm_of_a_library_is_a_warning)
{
    struct gemm_rig r;
    struct text log = {0};
    struct gemm g = usual;
    const char *path = test_path(test_folder(), "log.txt");
    CHECK_STATUS(OK, log_open(path));
    log_set_quiet(true);
    stub_rocblas_hide(true);
    g.K = STUB_HIP_UNSUPPORTED_K;
    open_rig(&r, g);
    free(run_gemm(&r, false)), free(run_gemm(&r, false));
    r.g.accumulate = true;
    free(run_gemm(&r, false));
    close_rig(&r);
    stub_rocblas_hide(false);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(strstr(log.data, "bfloat16 to bfloat16: using our own kernels, which are slower: rocBLAS "
                           "is not installed"));
    CHECK(count_lines(log.data, "") == 2 && count_lines(log.data, "warning: ") == 1);
    text_release(&log);
}

TEST(without_hipblaslt_and_rocblas_our_kernels_compute_every_gemm)
{
    struct gemm_rig r;
    struct text name = {0};
    stub_hipblaslt_hide(true), stub_rocblas_hide(true);
    log_set_quiet(true);
    open_rig(&r, (struct gemm){40, 24, 16, .a = GEMM_BF16, .b = GEMM_BF16, .out = F32});
    float *tiled = run_gemm(&r, true), *ours = run_gemm(&r, false);
    CHECK(!memcmp(tiled, ours, 40 * 24 * sizeof *ours) && !stub_hipblaslt.handles);
    CHECK_STATUS(UNSUPPORTED, GPU_NAME(gemm_library)(&name));
    CHECK(!strstr(status_message(), "rocBLAS"));
    free(tiled), free(ours);
    close_rig(&r);
    stub_hipblaslt_hide(false);
    CHECK_STATUS(OK, GPU_NAME(gemm_library)(&name));
    CHECK(!strcmp(name.data, "hipBLASLt 1.4.1, no rocBLAS") && !stub_hipblaslt.handles);
    stub_rocblas_hide(false);
    text_clear(&name);
    CHECK_STATUS(OK, GPU_NAME(gemm_library)(&name));
    CHECK(!strcmp(name.data, "hipBLASLt 1.4.1, rocBLAS 4.4.0"));
    text_release(&name);
    stub_hipblaslt_hide(true);
    CHECK_STATUS(UNSUPPORTED, GPU_NAME(gemm_library)(&name));
    CHECK_MESSAGE("hipBLASLt is not installed");
    CHECK_MESSAGE("; rocBLAS 4.4.0 computes all GEMMs");
    stub_hipblaslt_hide(false);
    stub_hipblaslt_set_version(300);
    CHECK_STATUS(UNSUPPORTED, GPU_NAME(gemm_library)(&name));
    CHECK_MESSAGE("hipBLASLt 0.3 is too old");
    CHECK(!stub_hipblaslt.handles);
    stub_hipblaslt_set_version(100401);
}

/* A check of each kind of GEMM, which is one call, precedes its first. */
TEST(rocblas_computes_what_hipblaslt_does_not_support)
{
    struct stub_hipblaslt before = stub_hipblaslt;
    int ran = stub_rocblas.ran;
    for (unsigned variant = 0; variant < 3 * 8; variant++) {
        struct gemm g = {.M = 32, .N = 48, .K = STUB_HIP_UNSUPPORTED_K};
        g.transpose_a = variant & 1, g.transpose_b = variant & 2, g.accumulate = variant & 4;
        g.a = g.b = variant / 8 ? GEMM_BF16 : GEMM_F32;
        g.out = variant / 8 == 1 ? BF16 : F32;
        compare(g);
        CHECK(stub_rocblas.ran == (ran += 2));
    }
    CHECK(stub_hipblaslt.ran == before.ran && !stub_rocblas.failed && !stub_rocblas.handles);
}

TEST(rocblas_uses_a_workspace_of_scratch_and_keeps_no_memory_of_its_own)
{
    struct gemm_rig r;
    struct gemm g = usual;
    int ran = stub_rocblas.ran;
    g.K = STUB_HIP_UNSUPPORTED_K;
    open_rig(&r, g);
    for (int i = 0; i < 3; i++) free(run_gemm(&r, false));
    CHECK(stub_rocblas.ran == ran + 1 + 3 && stub_rocblas.handles == 1 && !stub_rocblas.allocates);
    CHECK(stub_rocblas.workspace == 80 << 20);
    close_rig(&r);
    CHECK(!stub_rocblas.handles);
}

/* HIPBLASLT_CHUNK is 128 KiB in tests: of 600 rows of 64 elements, 512 and 88. */
TEST(rocblas_multiplies_scaled_gemms_in_chunks_of_rows)
{
    int ran = stub_rocblas.ran;
    for (int transpose_a = 0; transpose_a < 2; transpose_a++) {
        struct gemm g = usual;
        g.M = 600, g.N = 64, g.K = STUB_HIP_UNSUPPORTED_K;
        g.scaled = true, g.transpose_a = transpose_a;
        compare(g);
        CHECK(stub_rocblas.ran == (ran += 1 + 2));
    }
}

TEST(without_hipblaslt_rocblas_computes_every_gemm)
{
    int ran = stub_rocblas.ran;
    log_set_quiet(true);
    stub_hipblaslt_hide(true);
    compare(usual);
    stub_hipblaslt_hide(false);
    CHECK(stub_rocblas.ran == ran + 2);
}

TEST(rocblas_that_multiplies_wrongly_is_not_used)
{
    struct stub_rocblas before = stub_rocblas;
    struct gemm_rig r;
    struct gemm g = usual;
    g.K = STUB_HIP_UNSUPPORTED_K;
    log_set_quiet(true);
    stub_rocblas_miscount(true);
    open_rig(&r, g);
    float *tiled = run_gemm(&r, true), *ours = run_gemm(&r, false);
    CHECK(!memcmp(tiled, ours, (size_t)g.M * (size_t)g.N * sizeof *ours));
    CHECK(stub_rocblas.ran == before.ran + 1);
    free(tiled), free(ours);
    close_rig(&r);
    stub_rocblas_miscount(false);
}

TEST(our_kernels_compute_what_rocblas_refuses_when_it_is_called)
{
    struct gemm_rig r;
    struct gemm g = usual;
    g.K = STUB_ROC_UNSUPPORTED_K;
    log_set_quiet(true);
    stub_hipblaslt_hide(true);
    open_rig(&r, g);
    float *tiled = run_gemm(&r, true), *ours = run_gemm(&r, false);
    CHECK(!memcmp(tiled, ours, (size_t)g.M * (size_t)g.N * sizeof *ours));
    free(tiled), free(ours);
    close_rig(&r);
    stub_hipblaslt_hide(false);
}

TEST(a_gemm_that_hipblaslt_refuses_when_it_is_called_is_computed_by_rocblas_or_our_kernels)
{
    struct stub_hipblaslt before = stub_hipblaslt;
    log_set_quiet(true);
    for (int variant = 0; variant < 4; variant++) {
        struct gemm g = usual;
        int ran = stub_rocblas.ran;
        g.scaled = variant & 1, g.accumulate = true;
        stub_rocblas_hide(variant & 2);
        stub_hipblaslt_refuse(true);
        compare(g);
        CHECK(stub_rocblas.ran == ran + (variant & 2 ? 0 : 2));
        CHECK(!stub_hipblaslt.descriptors && !stub_hipblaslt.layouts);
    }
    CHECK(stub_hipblaslt.ran == before.ran);
    stub_hipblaslt_refuse(false), stub_rocblas_hide(false);
}

TEST(a_failure_of_rocblas_after_its_first_gemm_is_reported)
{
    struct gemm_rig r;
    struct gemm g = usual;
    g.K = STUB_HIP_UNSUPPORTED_K;
    open_rig(&r, g);
    free(run_gemm(&r, false));
    CHECK_STATUS(OK, arena_init(&r.queue->scratch, 128 << 20, queue_device_allocator(r.queue)));
    stub_rocblas_break(true);
    CHECK_STATUS(DEVICE, GPU_NAME(gemm)(&r.g, &r.io, r.queue));
    CHECK_MESSAGE("rocBLAS refuses it with status 6");
    stub_rocblas_break(false);
    close_rig(&r);
    stub_rocblas.failed = 0;
}

TEST(a_gemm_that_was_not_sized_for_hipblaslt_uses_no_more_scratch_than_is_free)
{
    struct gemm_rig r;
    struct stub_hipblaslt before = stub_hipblaslt;
    open_rig(&r, usual);
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r.g, &r.io, r.queue));
    CHECK_STATUS(OK, queue_wait(r.queue));
    CHECK(stub_hipblaslt.ran == before.ran && stub_hipblaslt.failed == before.failed);
    close_rig(&r);
}

/* HIPBLASLT_CHUNK is 128 KiB in tests: of 600 rows of 64 elements, 512 and 88. */
TEST(hipblaslt_multiplies_scaled_gemms_in_chunks_of_rows)
{
    struct gemm_rig r;
    struct stub_hipblaslt before = stub_hipblaslt;
    struct gemm g = usual;
    g.M = 600, g.N = 64, g.scaled = true;
    open_rig(&r, g);
    free(run_gemm(&r, false)), free(run_gemm(&r, false));
    CHECK(stub_hipblaslt.ran == before.ran + 4 && stub_hipblaslt.failed == before.failed);
    CHECK(stub_hipblaslt.num_heuristics == before.num_heuristics + 2);
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r.g, &r.io, r.queue)); /* no scratch: our own kernels */
    CHECK_STATUS(OK, queue_wait(r.queue));
    CHECK(stub_hipblaslt.ran == before.ran + 4);
    close_rig(&r);
}

/* The stub's workspace has 1000 bytes where plan counts 80 MiB. */
TEST(plan_counts_the_scratch_that_scaled_gemms_of_hipblaslt_reserve)
{
    struct gemm_rig r;
    struct op_call c = {OP_linear_forward,
                        .what.linear_forward = {.N = 32, .D = 64, .F = 48, .float8 = true}};
    struct gpu_traits amd = {.vendor = VENDOR_amd};
    struct gemm g = usual;
    g.scaled = true;
    open_rig(&r, g);
    r.queue->sizing = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r.g, &(struct gemm_io){0}, r.queue));
    CHECK(r.queue->scratch.peak - 1088 ==
          gpu_scratch_bytes(&c, false, &amd) - (80 << 20) - ARENA_ALIGN);
    r.queue->sizing = false;
    close_rig(&r);
}

TEST(a_failure_of_hipblaslt_is_reported)
{
    struct gemm_rig r;
    open_rig(&r, usual);
    free(run_gemm(&r, false));
    CHECK_STATUS(OK, arena_init(&r.queue->scratch, 1 << 12, queue_device_allocator(r.queue)));
    stub_hipblaslt_break(true);
    CHECK_STATUS(DEVICE, GPU_NAME(gemm)(&r.g, &r.io, r.queue));
    CHECK_MESSAGE("hipBLASLt: hipblasLtMatmul");
    stub_hipblaslt_break(false);
    close_rig(&r);
}
#endif
