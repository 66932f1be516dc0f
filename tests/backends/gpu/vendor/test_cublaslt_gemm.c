// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/gpu.h"
#include "backends/gpu/vendor/column_major.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/log.h"
#include "base/rng.h"
#include "ops/float8.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <unistd.h>

static bool has_device(void)
{
    int count = 0;
    return !GPU_NAME(count)(&count) && count > 0;
}

/* --- on a device --- */

struct gemm_rig {
    struct queue *queue;
    struct arena memory;
    struct gemm g;
    struct gemm_io io;
    size_t bytes[3];
};

static size_t bytes_of(enum gemm_type x, int rows, int columns)
{
    return (size_t)rows * (size_t)columns * (x == GEMM_F32 ? 4 : x == GEMM_BF16 ? 2 : 1);
}

/* Random values; FP8 ones have a magnitude near 1. */
static void fill(unsigned char *to, size_t bytes, enum gemm_type x)
{
    for (size_t i = 0; i < bytes / (x == GEMM_F32 ? 4 : x == GEMM_BF16 ? 2 : 1); i++) {
        float value = (float)rng_normal(7, RNG_TEST, 0, i);
        bf16 half = bf16_from_f32(value);
        if (x == GEMM_F32) memcpy(to + i * 4, &value, 4);
        if (x == GEMM_BF16) memcpy(to + i * 2, &half, 2);
        if (x == GEMM_E4M3) to[i] = (unsigned char)(0x30 + i * 7 % 16 + (value < 0 ? 0x80u : 0u));
        if (x == GEMM_E5M2) to[i] = (unsigned char)(0x38 + i * 5 % 8 + (value < 0 ? 0x80u : 0u));
    }
}

static void *upload(struct gemm_rig *r, size_t bytes, enum gemm_type x)
{
    unsigned char *host = heap(bytes), *at = arena_alloc(&r->memory, bytes, 1);
    fill(host, bytes, x);
    CHECK_STATUS(OK, queue_copy(r->queue, at, host, bytes));
    free(host);
    return at;
}

static void open_rig(struct gemm_rig *r, struct gemm g)
{
    const struct float8_scale scales[2] = {{4, 0.25f}, {0.5f, 2}};
    struct float8_scale *at;
    *r = (struct gemm_rig){.g = g};
    r->bytes[0] = bytes_of(g.a, g.M, g.K), r->bytes[1] = bytes_of(g.b, g.K, g.N);
    r->bytes[2] = (size_t)g.M * (size_t)g.N * dtype_bytes(g.out);
    CHECK_STATUS(OK, GPU_NAME(open)(&r->queue, 0));
    CHECK_STATUS(OK, arena_init(&r->memory, r->bytes[0] + r->bytes[1] + r->bytes[2] + 1024,
                                queue_device_allocator(r->queue)));
    r->io.a = upload(r, r->bytes[0], g.a), r->io.b = upload(r, r->bytes[1], g.b);
    r->io.d = r->io.c = upload(r, r->bytes[2], g.out == F32 ? GEMM_F32 : GEMM_BF16);
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
    unsigned char *old = heap(r->bytes[2]);
    float *c = heap(n * sizeof *c);
    CHECK_STATUS(OK, queue_copy(r->queue, old, r->io.c, r->bytes[2]));
    r->queue->sizing = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r->g, &(struct gemm_io){0}, r->queue));
    r->queue->sizing = false;
    size_t scratch = r->queue->scratch.peak;
    CHECK_STATUS(OK, arena_init(&r->queue->scratch, scratch, queue_device_allocator(r->queue)));
    CHECK_STATUS(OK, (tiled ? GPU_NAME(gemm_tiled) : GPU_NAME(gemm))(&r->g, &r->io, r->queue));
    unsigned char *new = heap(r->bytes[2]);
    CHECK_STATUS(OK, queue_copy(r->queue, new, r->io.c, r->bytes[2]));
    for (size_t i = 0; i < n; i++)
        c[i] = r->g.out == F32 ? ((float *)new)[i] : bf16_to_f32(((bf16 *)new)[i]);
    CHECK_STATUS(OK, queue_copy(r->queue, r->io.c, old, r->bytes[2]));
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
    /* FP8 may accumulate in less than f32. */
    double tolerance = g.a == GEMM_E4M3 ? 5e-3 : g.out == BF16 ? 5e-3 : 1e-5;
    if (!(sqrt(error) <= tolerance * sqrt(size)))
        fail_msg("%d x %d x %d of type %d: error %g of %g", g.M, g.N, g.K, g.a, sqrt(error),
                 sqrt(size));
    free(tiled), free(library);
    close_rig(&r);
}

static const int sizes[][3] = {{64, 128, 32}, {32, 48, 80}, {7, 33, 65}};

TEST(cublaslt_matches_our_kernels)
{
    if (!has_device()) skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned variant = 0; variant < 3 * 16; variant++) {
            struct gemm g = {.M = sizes[i][0], .N = sizes[i][1], .K = sizes[i][2]};
            g.transpose_a = variant & 1, g.transpose_b = variant & 2, g.accumulate = variant & 4;
            g.a = g.b = variant / 16 ? GEMM_BF16 : GEMM_F32, g.scaled = variant / 16 && variant & 8;
            g.out = variant / 16 == 1 ? BF16 : F32;
            compare(g);
        }
}

TEST(cublaslt_matches_our_kernels_in_fp8)
{
    if (!has_device()) skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned variant = 0; variant < 8; variant++) {
            struct gemm g = {sizes[i][0], sizes[i][1], sizes[i][2], .transpose_b = true};
            g.a = variant & 1 ? GEMM_E5M2 : GEMM_E4M3, g.b = GEMM_E4M3, g.scaled = true;
            g.out = variant & 2 ? BF16 : F32, g.accumulate = variant & 4;
            compare(g);
        }
}

#if !defined(GPU_CUDA) /* calls to the stub of cuBLASLt */
#include "backends/gpu/vendor/stub_cublaslt.h"

static const struct gemm usual = {
    32, 48, 64, .transpose_b = true, .a = GEMM_BF16, .b = GEMM_BF16, .out = BF16};

TEST(a_gemm_is_prepared_once_and_everything_is_freed)
{
    struct gemm_rig r;
    open_rig(&r, usual);
    struct stub_cublaslt before = stub_cublaslt;
    for (int i = 0; i < 3; i++) free(run_gemm(&r, false));
    CHECK(stub_cublaslt.num_heuristics == before.num_heuristics + 1 &&
          stub_cublaslt.ran[0] == before.ran[0] + 3);
    r.g.accumulate = true;
    free(run_gemm(&r, false));
    CHECK(stub_cublaslt.num_heuristics == before.num_heuristics + 2 && stub_cublaslt.matmuls == 2);
    CHECK(stub_cublaslt.layouts == 6 && stub_cublaslt.handles == 1);
    close_rig(&r);
    CHECK(!stub_cublaslt.matmuls && !stub_cublaslt.layouts && !stub_cublaslt.handles);
    CHECK(!stub_cublaslt.preferences && stub_cublaslt.failed == before.failed);
}

TEST(our_kernels_compute_what_cublaslt_does_not_support)
{
    struct stub_cublaslt before = stub_cublaslt;
    struct gemm g = usual;
    g.K = STUB_UNSUPPORTED_K;
    compare(g);
    g.a = g.b = GEMM_E4M3, g.scaled = true; /* a tensor-parallel rank may have such a K */
    compare(g);
    CHECK(stub_cublaslt.num_heuristics == before.num_heuristics + 2 &&
          stub_cublaslt.ran[0] == before.ran[0]);
    CHECK(!stub_cublaslt.matmuls && !stub_cublaslt.layouts);
}

TEST(without_cublaslt_our_kernels_compute_every_gemm)
{
    struct gemm_rig r;
    stub_cublaslt_hide(true);
    log_set_quiet(true);
    open_rig(&r, (struct gemm){40, 24, 16, .a = GEMM_BF16, .b = GEMM_BF16, .out = F32});
    const struct tuning_files files = {.path = "/nonexistent/gemm.json", .measures = true};
    GPU_NAME(gemm_tune)(r.queue, &files); /* has nothing to time */
    float *tiled = run_gemm(&r, true), *ours = run_gemm(&r, false);
    CHECK(!memcmp(tiled, ours, 40 * 24 * sizeof *ours));
    CHECK(!stub_cublaslt.handles);
    free(tiled), free(ours);
    close_rig(&r);
    stub_cublaslt_hide(false);
}

TEST(unaligned_operands_get_their_own_algorithm)
{
    struct gemm_rig r;
    struct stub_cublaslt before = stub_cublaslt;
    open_rig(&r, usual);
    r.g.M -= 1; /* so that the last row stays within the buffer */
    r.io.a = (const bf16 *)r.io.a + 1;
    float *tiled = run_gemm(&r, true), *library = run_gemm(&r, false);
    CHECK(stub_cublaslt.ran[0] == before.ran[0] + 1);
    CHECK(stub_cublaslt.num_heuristics ==
          before.num_heuristics + 2); /* sized with 16-byte alignment, run with 2 */
    for (int i = 0; i < r.g.M * r.g.N; i++) CHECK_NEAR((double)tiled[i], (double)library[i], 1e-2);
    free(tiled), free(library);
    close_rig(&r);
}

TEST(a_gemm_that_was_not_sized_uses_no_more_scratch_than_is_free)
{
    struct gemm_rig r;
    struct stub_cublaslt before = stub_cublaslt;
    open_rig(&r, usual);
    r.g.scaled = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r.g, &r.io, r.queue));
    CHECK_STATUS(OK, queue_wait(r.queue));
    CHECK(stub_cublaslt.ran[0] == before.ran[0] && stub_cublaslt.ran[2] == before.ran[2]);
    close_rig(&r);
}

TEST(fast_accumulation_is_used_for_forward_gemms_only)
{
    struct stub_cublaslt before = stub_cublaslt;
    struct gemm g = usual;
    g.a = g.b = GEMM_E4M3, g.scaled = true;
    compare(g);
    CHECK(stub_cublaslt.fast_accumulation == before.fast_accumulation + 1);
    g.a = GEMM_E5M2;
    compare(g);
    CHECK(stub_cublaslt.fast_accumulation == before.fast_accumulation + 1);
}

TEST(partial_sums_are_added_in_float32_and_in_order)
{
    struct stub_cublaslt before = stub_cublaslt;
    struct gemm g = usual;
    compare(g);
    g.out = F32, g.accumulate = true;
    compare(g);
    CHECK(stub_cublaslt.num_heuristics == before.num_heuristics + 2);
    CHECK(stub_cublaslt.other_reductions == before.other_reductions);
}

TEST(gemms_leave_multiprocessors_to_transfers)
{
    struct gemm_rig r;
    int all;
    CHECK(!gpu_multiprocessors(&all, 0) && all > 8);
    open_rig(&r, usual);
    free(run_gemm(&r, false));
    CHECK(stub_cublaslt.multiprocessors == 0);     /* not set: the library's default */
    GPU_NAME(leave_multiprocessors)(r.queue, all); /* would leave none to the GEMM */
    free(run_gemm(&r, false));
    CHECK(stub_cublaslt.multiprocessors == 0 && stub_cublaslt.matmuls == 1);
    GPU_NAME(leave_multiprocessors)(r.queue, 8);
    float *tiled = run_gemm(&r, true), *library = run_gemm(&r, false);
    CHECK(stub_cublaslt.multiprocessors == all - 8 && stub_cublaslt.matmuls == 2);
    for (int i = 0; i < r.g.M * r.g.N; i++) CHECK_NEAR((double)tiled[i], (double)library[i], 1e-2);
    free(tiled), free(library);
    close_rig(&r);
}

TEST(a_failure_of_cublaslt_is_reported)
{
    struct gemm_rig r;
    open_rig(&r, usual);
    free(run_gemm(&r, false));
    CHECK_STATUS(OK, arena_init(&r.queue->scratch, 1 << 12, queue_device_allocator(r.queue)));
    stub_cublaslt_break(true);
    CHECK_STATUS(DEVICE, GPU_NAME(gemm)(&r.g, &r.io, r.queue));
    CHECK_MESSAGE("the stub failed");
    stub_cublaslt_break(false);
    close_rig(&r);
}
#endif
