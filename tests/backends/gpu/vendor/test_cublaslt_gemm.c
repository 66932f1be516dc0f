// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/gpu.h"
#include "backends/gpu/vendor/column_major.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/rng.h"
#include "ops/float8.h"
#include "tensor/device.h"

#include <unistd.h>

static bool has_device(void)
{
    int count = 0;
    return !GPU_NAME(count)(&count) && count > 0;
}

TEST(a_product_without_a_device_says_what_is_missing)
{
    struct queue on = {.measuring = true};
    struct gemm g = {16, 16, 16, .a = GEMM_BF16, .b = GEMM_BF16, .out = BF16};
    if (has_device()) skip();
    CHECK_STATUS(DEVICE, GPU_NAME(gemm)(&g, &(struct gemm_io){0}, &on));
    CHECK_MESSAGE("cuBLASLt cannot begin");
}

/* --- on a device ---------------------------------------------------------------------------- */

struct rig {
    struct queue *on;
    struct arena memory;
    struct gemm g;
    struct gemm_io io;
    size_t bytes[3];
};

static size_t bytes_of(enum gemm_number x, int rows, int columns)
{
    return (size_t)rows * (size_t)columns * (x == GEMM_F32 ? 4 : x == GEMM_BF16 ? 2 : 1);
}

/* A random number of each kind; of eight bits one of a size near 1. */
static void fill(unsigned char *to, size_t bytes, enum gemm_number x)
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

static void *put(struct rig *r, size_t bytes, enum gemm_number x)
{
    unsigned char *host = heap(bytes), *at = arena_take(&r->memory, bytes, 1);
    fill(host, bytes, x);
    CHECK_STATUS(OK, queue_copy(r->on, at, host, bytes));
    free(host);
    return at;
}

static void open_rig(struct rig *r, struct gemm g)
{
    const struct float8_scale scales[2] = {{4, 0.25f}, {0.5f, 2}};
    struct float8_scale *at;
    *r = (struct rig){.g = g};
    r->bytes[0] = bytes_of(g.a, g.M, g.K), r->bytes[1] = bytes_of(g.b, g.K, g.N);
    r->bytes[2] = (size_t)g.M * (size_t)g.N * dtype_bytes(g.out);
    CHECK_STATUS(OK, GPU_NAME(open)(&r->on, 0));
    CHECK_STATUS(OK, arena_init(&r->memory, r->bytes[0] + r->bytes[1] + r->bytes[2] + 1024,
                                queue_memory(r->on)));
    r->io.a = put(r, r->bytes[0], g.a), r->io.b = put(r, r->bytes[1], g.b);
    r->io.d = r->io.c = put(r, r->bytes[2], g.out == F32 ? GEMM_F32 : GEMM_BF16);
    at = arena_take(&r->memory, 2, sizeof *at);
    CHECK_STATUS(OK, queue_copy(r->on, at, scales, sizeof scales));
    r->io.a_scale = at, r->io.b_scale = at + 1;
}

static void close_rig(struct rig *r)
{
    arena_release(&r->memory);
    GPU_NAME(gemm_close)(r->on);
    GPU_NAME(close)(r->on);
}

/* What C is afterwards, as f32; before it is what it was. */
static float *result(struct rig *r, bool tiled)
{
    size_t n = (size_t)r->g.M * (size_t)r->g.N;
    unsigned char *old = heap(r->bytes[2]);
    float *c = heap(n * sizeof *c);
    CHECK_STATUS(OK, queue_copy(r->on, old, r->io.c, r->bytes[2]));
    r->on->measuring = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r->g, &(struct gemm_io){0}, r->on));
    r->on->measuring = false;
    size_t scratch = r->on->scratch.peak;
    CHECK_STATUS(OK, arena_init(&r->on->scratch, scratch, queue_memory(r->on)));
    CHECK_STATUS(OK, (tiled ? GPU_NAME(gemm_tiled) : GPU_NAME(gemm))(&r->g, &r->io, r->on));
    unsigned char *new = heap(r->bytes[2]);
    CHECK_STATUS(OK, queue_copy(r->on, new, r->io.c, r->bytes[2]));
    for (size_t i = 0; i < n; i++)
        c[i] = r->g.out == F32 ? ((float *)new)[i] : bf16_to_f32(((bf16 *)new)[i]);
    CHECK_STATUS(OK, queue_copy(r->on, r->io.c, old, r->bytes[2]));
    arena_release(&r->on->scratch);
    free(old), free(new);
    return c;
}

static void compare(struct gemm g)
{
    struct rig r;
    open_rig(&r, g);
    float *ours = result(&r, true), *theirs = result(&r, false);
    double off = 0, size = 0;
    for (size_t i = 0; i < (size_t)g.M * (size_t)g.N; i++) {
        double difference = (double)theirs[i] - (double)ours[i];
        off += difference * difference, size += (double)ours[i] * (double)ours[i];
    }
    /* Eight bits may be summed with less than f32. */
    double most = g.a == GEMM_E4M3 ? 5e-3 : g.out == BF16 ? 5e-3 : 1e-5;
    if (!(sqrt(off) <= most * sqrt(size)))
        fail_msg("%d x %d x %d of kind %d: off by %g of %g", g.M, g.N, g.K, g.a, sqrt(off),
                 sqrt(size));
    free(ours), free(theirs);
    close_rig(&r);
}

static const int sizes[][3] = {{64, 128, 32}, {32, 48, 80}, {7, 33, 65}};

TEST(the_library_multiplies_as_our_kernels_do)
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

TEST(the_library_multiplies_eight_bits_as_our_kernels_do)
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

#if !defined(GPU_CUDA) /* what the library that stands in for cuBLASLt was asked for */
#include "backends/gpu/vendor/stub_cublaslt.h"

static const struct gemm usual = {
    32, 48, 64, .transpose_b = true, .a = GEMM_BF16, .b = GEMM_BF16, .out = BF16};

TEST(a_product_is_prepared_once_and_everything_is_given_back)
{
    struct rig r;
    open_rig(&r, usual);
    struct stub_cublaslt before = stub_cublaslt;
    for (int i = 0; i < 3; i++) free(result(&r, false));
    CHECK(stub_cublaslt.asked == before.asked + 1 && stub_cublaslt.ran[0] == before.ran[0] + 3);
    r.g.accumulate = true;
    free(result(&r, false));
    CHECK(stub_cublaslt.asked == before.asked + 2 && stub_cublaslt.products == 2);
    CHECK(stub_cublaslt.layouts == 6 && stub_cublaslt.libraries == 1);
    close_rig(&r);
    CHECK(!stub_cublaslt.products && !stub_cublaslt.layouts && !stub_cublaslt.libraries);
    CHECK(!stub_cublaslt.wishes && stub_cublaslt.failed == before.failed);
}

TEST(what_the_library_does_not_know_our_kernels_make)
{
    struct stub_cublaslt before = stub_cublaslt;
    struct gemm g = usual;
    g.K = STUB_UNKNOWN;
    compare(g);
    CHECK(stub_cublaslt.asked == before.asked + 1 && stub_cublaslt.ran[0] == before.ran[0]);
    CHECK(!stub_cublaslt.products && !stub_cublaslt.layouts);
}

TEST(operands_off_16_bytes_have_algorithms_of_their_own)
{
    struct rig r;
    struct stub_cublaslt before = stub_cublaslt;
    open_rig(&r, usual);
    r.g.M -= 1; /* so that the last row is not read past its end */
    r.io.a = (const bf16 *)r.io.a + 1;
    float *ours = result(&r, true), *theirs = result(&r, false);
    CHECK(stub_cublaslt.ran[0] == before.ran[0] + 1);
    CHECK(stub_cublaslt.asked == before.asked + 2); /* measured for 16 bytes, run with 2 */
    for (int i = 0; i < r.g.M * r.g.N; i++) CHECK_NEAR((double)ours[i], (double)theirs[i], 1e-2);
    free(ours), free(theirs);
    close_rig(&r);
}

TEST(a_product_that_nobody_measured_takes_nothing_that_is_not_there)
{
    struct rig r;
    struct stub_cublaslt before = stub_cublaslt;
    open_rig(&r, usual);
    r.g.scaled = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&r.g, &r.io, r.on));
    CHECK_STATUS(OK, queue_wait(r.on));
    CHECK(stub_cublaslt.ran[0] == before.ran[0] && stub_cublaslt.ran[2] == before.ran[2]);
    close_rig(&r);
}

TEST(sums_of_less_than_f32_are_for_forward_products_alone)
{
    struct stub_cublaslt before = stub_cublaslt;
    struct gemm g = usual;
    g.a = g.b = GEMM_E4M3, g.scaled = true;
    compare(g);
    CHECK(stub_cublaslt.fast == before.fast + 1);
    g.a = GEMM_E5M2;
    compare(g);
    CHECK(stub_cublaslt.fast == before.fast + 1);
}

TEST(a_library_that_fails_says_so)
{
    struct rig r;
    open_rig(&r, usual);
    free(result(&r, false));
    CHECK_STATUS(OK, arena_init(&r.on->scratch, 1 << 12, queue_memory(r.on)));
    stub_cublaslt_break(true);
    CHECK_STATUS(DEVICE, GPU_NAME(gemm)(&r.g, &r.io, r.on));
    CHECK_MESSAGE("the stub failed");
    stub_cublaslt_break(false);
    close_rig(&r);
}
#endif
