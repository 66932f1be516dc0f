// SPDX-License-Identifier: Apache-2.0
#include "perf/gpu_scratch.h"
#include "test.h"

#include "backends/gpu/gpu.h"
#include "backends/gpu/vendor/cudnn_attention.h"
#include "backends/gpu/vendor/cudnn_attention_plans.h"
#include "config/config.h"
#include "perf/op_calls.h"

/* Scratch of a call in a sizing pass of the GPU backend itself, over the emulator. */
static size_t emulated_bytes(const struct op_call *c, int warp_size)
{
    struct queue *queue;
    void *const none[OP_BUFFERS] = {0};
    CHECK_STATUS(OK, warp_size == 32 ? gpu_emu32_open(&queue, 0) : gpu_emu64_open(&queue, 0));
    queue->sizing = true;
    CHECK_STATUS(OK, op_run(c, warp_size == 32 ? &gpu_emu32_ops : &gpu_emu64_ops, none, queue));
    size_t bytes = queue->scratch.peak;
    (warp_size == 32 ? gpu_emu32_close : gpu_emu64_close)(queue);
    return bytes;
}

static bool is_gemm(const struct op_call *c)
{
    return c->op == OP_linear_forward || c->op == OP_linear_backward_input ||
           c->op == OP_linear_backward_weight;
}

static void compare_with_emulator(const struct op_call *c)
{
    for (int warp_size = 32; warp_size <= 64; warp_size += 32) {
        struct gpu_traits g = {warp_size == 32 ? VENDOR_none : VENDOR_amd, true, 0, false, false};
        if (warp_size == 64 && is_gemm(c)) continue; /* of hipBLASLt */
        size_t bytes = gpu_scratch_bytes(c, false, &g), real = emulated_bytes(c, warp_size);
        if (bytes != real)
            fprintf(stderr, "%s, warps of %d: %zu bytes, the backend reserves %zu\n",
                    op_name(c->op), warp_size, bytes, real);
        CHECK(bytes == real);
    }
}

/* Every operation of a step, forward and backward. */
static void compare_step(const char *const *settings, int count)
{
    struct config c;
    struct model_shape shape;
    struct op_calls l;
    CHECK_STATUS(OK, config_load(&c, NULL, settings, count));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 0));
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &gpu_emu32_ops, false));
    CHECK(l.count > 10);
    for (size_t i = 0; i < l.count; i++) compare_with_emulator(&l.calls[i].call);
    op_calls_release(&l);
    config_release(&c);
}

#define SETTINGS "model.n_layers=1", "training.dataset_path=mock", "model.vocab_size=515"

TEST(gpu_scratch_is_what_the_backend_reserves_for_every_operation_of_a_step)
{
    const char *const small[] = {SETTINGS,
                                 "model.dim=72",
                                 "model.n_heads=3",
                                 "model.n_kv_heads=1",
                                 "training.seq_len=65",
                                 "training.local_batch_size=3",
                                 "optimizer.name=Muon"};
    const char *const wide[] = {SETTINGS,
                                "model.dim=1024",
                                "model.n_heads=8",
                                "model.n_kv_heads=2",
                                "training.seq_len=2048",
                                "training.local_batch_size=2",
                                "model.converters=[\"float8\"]"};
    const char *const f32[] = {SETTINGS,
                               "model.dim=480",
                               "model.n_heads=2",
                               "training.seq_len=300",
                               "training.mixed_precision_param=float32",
                               "optimizer.name=Muon"};
    compare_step(small, sizeof small / sizeof *small);
    compare_step(wide, sizeof wide / sizeof *wide);
    compare_step(f32, sizeof f32 / sizeof *f32);
}

TEST(gpu_scratch_of_several_sums_of_squares_is_what_the_backend_reserves)
{
    static const size_t sizes[] = {20001, 5}; /* several blocks a sum, and one */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct op_call c = {.op = OP_sum_squares, .what.sum_squares = {.n = sizes[i], .sums = 3}};
        struct op_call norm = {.op = OP_divide_by_norm, .what.divide_by_norm = {.n = sizes[i]}};
        compare_with_emulator(&c), compare_with_emulator(&norm);
    }
}

static struct attention attention_of(int B, int T, int H, int G)
{
    return (struct attention){.B = B,
                              .T = T,
                              .S = T,
                              .H = H,
                              .G = G,
                              .K = 128,
                              .q_stride = (size_t)(H + 2 * G) * 128,
                              .kv_stride = (size_t)(H + 2 * G) * 128,
                              .causal = true,
                              .dtype = BF16};
}

static double mib_on(const struct attention *a, bool has_documents, const struct gpu_traits *g)
{
    struct op_call c = {.op = OP_attention_backward, .what.attention_backward = *a};
    return (double)gpu_scratch_bytes(&c, has_documents, g) / (1 << 20);
}

static double mib_of(const struct attention *a, bool has_documents, bool deterministic)
{
    struct gpu_traits g = {VENDOR_nvidia, deterministic, CUDNN_ATTENTION_MAX_BYTES, false, false};
    return mib_on(a, has_documents, &g);
}

/* cuDNN 9.19 builds these plans for a described H200: 16 of 32 heads a call, 2112 MiB; two of four
 * rows; without determinism f32 sums for dq, and dk and dv of every query head. */
TEST(gpu_scratch_includes_the_workspace_of_cudnn)
{
    struct attention long_row = attention_of(1, 8192, 32, 8);
    struct attention rows = attention_of(4, 4096, 32, 8);
    rows.K = 64;
    double delta = 16 * 8192 * 4.0 / (1 << 20);
    CHECK_NEAR(mib_of(&long_row, false, true), 2112 + delta, 0.01);
    CHECK_NEAR(mib_of(&rows, false, true), 2112 + 2 * 32 * 4096 * 4.0 / (1 << 20), 0.01);
    CHECK_NEAR(mib_of(&long_row, false, false), 128 + 128 + 2 * delta, 0.01);
    CHECK(mib_of(&long_row, true, true) < 2); /* documents: our own kernel */
    struct attention longer = attention_of(1, 65536, 32, 8);
    CHECK(mib_of(&longer, false, true) < 9); /* not even one head fits */
    CHECK(CUDNN_ATTENTION_TILE == 128);
    struct op_call c = {.op = OP_attention_backward, .what.attention_backward = long_row};
    struct gpu_traits more = {VENDOR_nvidia, true, (size_t)5 << 30, false, false};
    CHECK((double)gpu_scratch_bytes(&c, false, &more) / (1 << 20) > 2 * 2112); /* all heads */
}

/* cuDNN 9.19 builds these plans for a described H200: of half the queries, or half the keys, all
 * heads fit into a deterministic call. */
TEST(gpu_scratch_of_a_ring_part_is_of_its_rectangle)
{
    enum { MIB = 1 << 20, T = 8192 };
    struct gpu_traits g = {VENDOR_nvidia, true, CUDNN_ATTENTION_MAX_BYTES, false, false};
    struct attention a = attention_of(1, T, 32, 8), unknown;
    a.keys = MORE_KEYS, a.causal = false, unknown = a;
    a.rectangle = (struct attention_rectangle){T / 2, T};
    CHECK_NEAR(mib_on(&a, false, &g), 2176 + 0.5 + 32 + 2 * 16 + 0.5, 0.01); /* with delta, lse */
    a.rectangle = (struct attention_rectangle){0, T / 2};
    CHECK_NEAR(mib_on(&a, true, &g), 2112 + 1 + 64 + 2 * 8, 0.01);
    g.deterministic = false;
    CHECK_NEAR(mib_on(&a, true, &g), 64 + 1 + 128 + 64 + 2 * 8, 0.01);
    CHECK(mib_on(&unknown, false, &g) < 2);
    struct op_call c = {.op = OP_attention_forward, .what.attention_forward = a};
    CHECK(gpu_scratch_bytes(&c, true, &g) == 65 * MIB);
    g.deterministic = true, a = attention_of(1, 65536, 32, 8), a.keys = FIRST_KEYS;
    a.rectangle.num_keys = 65536;
    CHECK(mib_on(&a, false, &g) < 9); /* not even one head fits: our own kernel */
}

/* cuDNN 9.19 builds these plans for a described B200: all rows a call, with dk and dv of every
 * query head in f32 unless H = G; no engine for heads above 128 elements. */
TEST(gpu_scratch_of_a_b200_has_no_ds)
{
    struct gpu_traits g = {VENDOR_nvidia, true, CUDNN_ATTENTION_MAX_BYTES, true, true}, less = g;
    struct attention a = attention_of(2, 8192, 32, 8), all_heads = attention_of(1, 8192, 32, 32);
    struct attention large = attention_of(1, 8192, 32, 8);
    double delta = 32 * 8192 * 4.0 / (1 << 20);
    CHECK_NEAR(mib_on(&a, false, &g), 512 + 2 * delta, 0.01);
    CHECK_NEAR(mib_on(&all_heads, false, &g), delta, 0.02);
    less.attention_bytes = (size_t)200 << 20; /* half the heads of one row */
    CHECK_NEAR(mib_on(&a, false, &less), 128 + delta / 2, 0.01);
    large.K = 256;
    CHECK(mib_on(&large, false, &g) < 2); /* our own kernel */
    a.B = 1; /* documents: all dk and dv, 4 x 6144 f32 a token each, or our own kernel */
    CHECK_NEAR(mib_on(&a, true, &g), 1536 + delta, 0.01);
    CHECK(mib_on(&a, true, &less) < 2);
    a.B = 2;
    g.deterministic = false;
    CHECK_NEAR(mib_on(&a, false, &g), mib_of(&a, false, false), 1e-9);
}

TEST(gpu_scratch_has_the_limit_of_attention_that_the_backend_has)
{
    struct config c;
    CHECK_STATUS(OK, config_load(&c, NULL, NULL, 0));
    CHECK((size_t)c.device.attention_bytes == CUDNN_ATTENTION_MAX_BYTES);
    config_release(&c);
}

TEST(gpu_scratch_includes_the_workspace_of_cublaslt_or_hipblaslt)
{
    struct op_call c = {.op = OP_linear_forward, .what.linear_forward = {.N = 8, .D = 8, .F = 8}};
    struct gpu_traits nvidia = {.vendor = VENDOR_nvidia}, amd = {.vendor = VENDOR_amd};
    CHECK(gpu_scratch_bytes(&c, false, &nvidia) >= 32 << 20);
    CHECK(gpu_scratch_bytes(&c, false, &amd) >= 80 << 20);
}

/* 2 x 8192 x 28672 x 4 bytes are 1.75 GiB: eight chunks of 2048 rows. */
TEST(gpu_scratch_includes_a_chunk_of_the_product_that_hipblaslt_leaves_to_be_scaled)
{
    struct op_call c = {.op = OP_linear_forward,
                        .what.linear_forward = {.N = 16384, .D = 4096, .F = 28672}};
    struct gpu_traits amd = {.vendor = VENDOR_amd}, native = {VENDOR_amd, .native_fp8 = true};
    size_t plain = gpu_scratch_bytes(&c, false, &amd);
    c.what.linear_forward.float8 = true;
    CHECK(gpu_scratch_bytes(&c, false, &amd) == plain + (size_t)2048 * 28672 * 4);
    CHECK(gpu_scratch_bytes(&c, false, &native) == plain);
    c.op = OP_linear_backward_weight; /* 28672 x 4096 */
    CHECK(gpu_scratch_bytes(&c, false, &amd) == plain + (size_t)14336 * 4096 * 4);
    c.what.linear_forward.F = 100, c.what.linear_forward.D = 10;
    CHECK(gpu_scratch_bytes(&c, false, &amd) == plain + (size_t)100 * 10 * 4 + 32);
}
