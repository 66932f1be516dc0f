// SPDX-License-Identifier: Apache-2.0
#include "perf/gpu_scratch.h"

#include "base/arena.h"

enum { CUBLASLT_BYTES = (32 << 20) + 3 * ARENA_ALIGN };
enum { HIPBLASLT_BYTES = (80 << 20) + ARENA_ALIGN }; /* at most */
enum { CUDNN_TILE = 128, CUDNN_MAX_HEAD = 256, CUDNN_MAX_HEAD_B200 = 128 };

static size_t divide_up(size_t n, size_t by) { return (n + by - 1) / by; }

/* Bytes of an allocation in an arena. */
static size_t padded(size_t bytes) { return divide_up(bytes, ARENA_ALIGN) * ARENA_ALIGN; }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* --- our own kernels (backends/gpu/kernels) --- */

static size_t embedding_backward_bytes(const struct embedding *a)
{
    enum { TILE = 1024, DIGITS = 512 };
    size_t N = (size_t)a->N;
    return 4 * padded(N * sizeof(int32_t)) + padded(divide_up(N, TILE) * DIGITS * sizeof(int32_t));
}

static size_t rmsnorm_backward_bytes(const struct rmsnorm *a)
{
    enum { MAX_GROUPS = 512 };
    size_t N = (size_t)a->N, rows = divide_up(N, MAX_GROUPS);
    return padded(divide_up(N, rows) * (size_t)a->D * sizeof(float));
}

/* Head sizes are padded to one of three. */
static int padded_head(const struct attention *a)
{
    return a->K <= 64 ? 64 : a->K <= 128 ? 128 : 256;
}

/* Few blocks of queries: keys are split over blocks, which leave partial results.  Enough for fewer
 * queries or keys, too. */
static size_t flash_forward_bytes(const struct attention *a, int lanes)
{
    enum { TARGET_BLOCKS = 264, MIN_SPLIT_BLOCKS = 4, TILE = 16 };
    int KP = padded_head(a), large = KP > 128, is_bf16 = a->dtype == BF16;
    bool is_narrow = is_bf16 && !large && lanes == 32;
    int warps = lanes == 32 || !is_bf16 ? 4 : 8;
    size_t tile_rows = is_narrow ? (KP == 64 ? 128 : 96) : (size_t)(warps * TILE);
    size_t tile_keys = is_narrow ? 48 : is_bf16 || !large ? 32 : 16;
    size_t key_blocks = divide_up((size_t)a->S, tile_keys), reached = key_blocks;
    if (a->window) reached = divide_up((size_t)a->window + (size_t)a->T - 1, tile_keys) + 1;
    size_t splits = divide_up(reached < key_blocks ? reached : key_blocks, MIN_SPLIT_BLOCKS);
    size_t rows = (size_t)a->B * (size_t)a->H * (size_t)a->T, most = tile_rows * TARGET_BLOCKS;
    size_t partials = rows < most / splits ? rows * splits : most;
    if (splits == 1 || (size_t)a->B * (size_t)a->G * 2 > TARGET_BLOCKS) return 0;
    return padded(partials * (size_t)a->K * sizeof(float)) + padded(partials * sizeof(float));
}

static size_t flash_backward_bytes(const struct attention *a, int lanes)
{
    enum { MASK_BYTES = 16 }; /* of a block of queries */
    int KP = padded_head(a), is_bf16 = a->dtype == BF16;
    size_t visited = KP > 128 && (lanes == 64 || !is_bf16) ? 16 : 32;
    if (is_bf16 && lanes == 32 && KP == 128) visited = 64;
    size_t B = (size_t)a->B, T = (size_t)a->T;
    return padded(B * (size_t)a->H * T * sizeof(float)) +
           padded(B * divide_up(T, visited) * MASK_BYTES);
}

static size_t sum_squares_bytes(const struct sum_squares *a)
{
    enum { PART = 16384 };
    size_t sums = sum_squares_count(a), blocks = divide_up(a->n, PART);
    size_t totals = blocks > 1 ? padded(sums * sizeof(double)) : 0;
    return padded(sums * blocks * sizeof(double)) + totals;
}

/* --- libraries (backends/gpu/vendor) --- */

/* hipBLASLt multiplies FP8 values that are kept as bf16 to f32, in chunks of rows. */
static size_t hipblaslt_product_bytes(size_t M, size_t N)
{
    enum { BYTES = 256 << 20, ROWS = 256 };
    size_t most = BYTES / (N * sizeof(float)) / ROWS * ROWS;
    size_t chunks = divide_up(M, most ? most : ROWS), rows = divide_up(M, chunks);
    rows = divide_up(rows, ROWS) * ROWS;
    return padded((rows < M ? rows : M) * N * sizeof(float));
}

static size_t gemm_bytes(const struct op_call *c, const struct gpu_traits *g)
{
    const struct linear *l = &c->what.linear_forward;
    size_t rows = (size_t)(c->op == OP_linear_backward_weight ? l->F : l->N);
    size_t columns = (size_t)(c->op == OP_linear_forward ? l->F : l->D);
    if (g->vendor == VENDOR_nvidia) return CUBLASLT_BYTES;
    if (g->vendor != VENDOR_amd) return 0;
    bool is_scaled = l->float8 && !g->native_fp8;
    return HIPBLASLT_BYTES + (is_scaled ? hipblaslt_product_bytes(rows, columns) : 0);
}

/* Queries and keys that cuDNN computes: of a ring part, those of its rectangle. */
static size_t cudnn_queries(const struct attention *a)
{
    return (size_t)(a->T - a->rectangle.first_query);
}

static size_t cudnn_keys(const struct attention *a)
{
    return (size_t)(a->rectangle.num_keys ? a->rectangle.num_keys : a->S);
}

static bool cudnn_supports(const struct attention *a, const struct gpu_traits *g)
{
    int max_head = g->is_b200 ? CUDNN_MAX_HEAD_B200 : CUDNN_MAX_HEAD;
    if (a->keys != ALL_KEYS && !a->rectangle.num_keys) return false;
    return a->dtype == BF16 && a->S == a->T && cudnn_queries(a) % CUDNN_TILE == 0 &&
           cudnn_keys(a) % CUDNN_TILE == 0 && a->K % 8 == 0 && a->K <= max_head;
}

/* dk and dv of every query head, before they are added up over a group. */
static size_t cudnn_group_bytes(const struct attention *a, size_t heads)
{
    if (a->H == a->G) return 0;
    return heads * 2 * cudnn_keys(a) * (size_t)a->K * sizeof(bf16);
}

/* Deterministic backward stores dS; on a B200 f32 sums of dk and dv instead. */
static size_t cudnn_deterministic_workspace(const struct attention *a, size_t heads, bool is_b200)
{
    size_t group_bytes = cudnn_group_bytes(a, heads);
    if (is_b200) return 2 * group_bytes;
    return heads * cudnn_queries(a) * cudnn_keys(a) * sizeof(bf16) + group_bytes;
}

/* The largest call that fits: all rows, a divisor of them, then a divisor of one row's heads. */
static size_t cudnn_deterministic_bytes(const struct attention *a, const struct gpu_traits *g)
{
    size_t T = cudnn_queries(a), group = (size_t)(a->H / a->G);
    for (int rows = a->B; rows > 0; rows--) {
        for (int kv_heads = a->G; kv_heads > 0; kv_heads--) {
            size_t heads = (size_t)rows * (size_t)kv_heads * group;
            size_t workspace = cudnn_deterministic_workspace(a, heads, g->is_b200);
            if (a->B % rows || a->G % kv_heads) continue;
            if (workspace <= g->attention_bytes) return workspace + heads * T * sizeof(float);
            if (rows > 1) break;
        }
    }
    return SIZE_MAX; /* no plan: our own kernel */
}

/* One call for all: delta, lse, dk and dv of every query head, and sums of dq in any order.
 * Deterministic only on a B200, and if dk and dv fit. */
static size_t cudnn_documents_bytes(const struct attention *a, const struct gpu_traits *g)
{
    size_t tokens = (size_t)a->B * (size_t)a->T, H = (size_t)a->H, group = H / (size_t)a->G;
    size_t heads = group > 1 ? 2 * tokens * a->kv_stride * group * sizeof(float) : 0;
    size_t bytes = heads + 2 * tokens * H * sizeof(float);
    if (a->K % 16) return 0;
    if (!g->deterministic) return bytes + tokens * a->q_stride * sizeof(float);
    return g->is_b200 && heads <= g->attention_bytes ? bytes : 0;
}

/* A ring part's results before they are merged (backends/gpu/attention_part.h). */
static size_t part_forward_bytes(const struct attention *a)
{
    size_t rows = (size_t)a->B * (size_t)a->H * cudnn_queries(a);
    return padded(rows * (size_t)a->K * sizeof(bf16)) + padded(rows * sizeof(float));
}

static size_t part_backward_bytes(const struct attention *a)
{
    size_t rows = (size_t)a->B * (size_t)a->H * cudnn_queries(a), K = (size_t)a->K;
    size_t keys = (size_t)a->B * (size_t)a->G * cudnn_keys(a);
    size_t lse = a->rectangle.first_query ? padded(rows * sizeof(float)) : 0;
    return padded(rows * K * sizeof(bf16)) + 2 * padded(keys * K * sizeof(bf16)) + lse;
}

static size_t cudnn_forward_bytes(const struct attention *a, const struct gpu_traits *g)
{
    return a->keys != ALL_KEYS && cudnn_supports(a, g) ? part_forward_bytes(a) : 0;
}

static size_t cudnn_backward_bytes(const struct attention *a, bool has_documents,
                                   const struct gpu_traits *g)
{
    size_t tokens = (size_t)a->B * cudnn_queries(a), H = (size_t)a->H;
    if (!cudnn_supports(a, g)) return 0;
    if (has_documents && a->keys == ALL_KEYS) return cudnn_documents_bytes(a, g);
    size_t bytes =
        tokens * (H + H * (size_t)a->K) * sizeof(float) + cudnn_group_bytes(a, (size_t)a->B * H);
    if (g->deterministic) bytes = cudnn_deterministic_bytes(a, g);
    if (bytes == SIZE_MAX) return 0;
    return bytes + (a->keys != ALL_KEYS ? part_backward_bytes(a) : 0);
}

size_t gpu_scratch_bytes(const struct op_call *c, bool has_documents, const struct gpu_traits *g)
{
    bool is_nvidia = g->vendor == VENDOR_nvidia, is_amd = g->vendor == VENDOR_amd;
    int lanes = is_amd ? 64 : 32;
    enum { AMAX_BYTES = 4096 };
    switch (c->op) {
    case OP_linear_forward:
    case OP_linear_backward_input:
    case OP_linear_backward_weight: return gemm_bytes(c, g);
    case OP_embedding_backward: return embedding_backward_bytes(&c->what.embedding_backward);
    case OP_rmsnorm_backward: return rmsnorm_backward_bytes(&c->what.rmsnorm_backward);
    case OP_attention_forward: {
        const struct attention *a = &c->what.attention_forward;
        return larger(is_nvidia ? cudnn_forward_bytes(a, g) : 0, flash_forward_bytes(a, lanes));
    }
    case OP_attention_backward: {
        const struct attention *a = &c->what.attention_backward;
        size_t cudnn = is_nvidia ? cudnn_backward_bytes(a, has_documents, g) : 0;
        return larger(cudnn, flash_backward_bytes(a, lanes));
    }
    case OP_sum_squares: return sum_squares_bytes(&c->what.sum_squares);
    case OP_divide_by_norm:
        return sum_squares_bytes(&(struct sum_squares){.n = c->what.divide_by_norm.n});
    case OP_amax: return AMAX_BYTES;
    default: return 0;
    }
}
