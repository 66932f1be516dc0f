/* Flash attention, forward and backward, with both warp sizes at sizes around those of its tiles,
 * compared with the definition in double, which stores all T x S probs. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/flash_attention.h"
#include "backends/gpu/gpu.h"
#include "ops/rig.h"

#define DECLARE(warp_size)                                                                         \
    enum status gpu_emu##warp_size##_flash_attention_forward(                                      \
        const struct attention *, const struct attention_fwd *, struct queue *);                   \
    enum status gpu_emu##warp_size##_flash_attention_backward(                                     \
        const struct attention *, const struct attention_bwd *, struct queue *);
DECLARE(32)
DECLARE(64)

/* Keys and values are interleaved: each row has P of keys, then P of values. */
struct problem {
    struct attention a;
    size_t Q, P, n_q, n_kv, n_out, n_lse;
    void *q, *kv, *dout;
    int32_t *start, *end;
    double *out, *lse, *dq, *dkv; /* expected; dq is dense */
};

/* `padding`: unused elements at the end of each row.  With documents, every sixth query sees no
 * key. */
static struct problem problem_make(struct attention a, int document, size_t padding)
{
    struct problem p = {.a = a, .Q = (size_t)(a.H * a.K), .P = (size_t)(a.G * a.K)};
    size_t T = (size_t)(a.B * a.T), S = (size_t)(a.B * a.S);
    p.a.q_stride = p.Q + padding, p.a.kv_stride = 2 * p.P + padding;
    if (p.a.scale == 0) p.a.scale = 1 / sqrtf((float)a.K);
    p.n_q = T * p.a.q_stride, p.n_kv = S * p.a.kv_stride, p.n_out = T * p.Q;
    p.n_lse = T * (size_t)a.H;
    p.q = rig_random(1, p.n_q, a.dtype), p.kv = rig_random(2, p.n_kv, a.dtype);
    p.dout = rig_random(3, p.n_out, a.dtype);
    p.out = heap(p.n_out * 8), p.lse = heap(p.n_lse * 8), p.dq = heap(p.n_out * 8);
    p.dkv = heap(p.n_kv * 8);
    if (!document) return p;
    p.start = heap(T * 4), p.end = heap(T * 4);
    for (int i = 0; i < a.B * a.T; i++) {
        int at = i % a.T * a.S / a.T, last = (at / document + 1) * document;
        p.start[i] = at / document * document, p.end[i] = last < a.S ? last : a.S;
        if (i % 6 == 5) p.end[i] = p.start[i];
    }
    return p;
}

static void problem_release(struct problem *p)
{
    free(p->q), free(p->kv), free(p->dout), free(p->start), free(p->end);
    free(p->out), free(p->lse), free(p->dq), free(p->dkv);
}

static double number(const void *x, size_t i, enum dtype dtype)
{
    return dtype == F32 ? (double)((const float *)x)[i] : (double)bf16_to_f32(((const bf16 *)x)[i]);
}

static double dot(const struct problem *p, const void *x, size_t i, const void *y, size_t j)
{
    double sum = 0;
    for (size_t k = 0; k < (size_t)p->a.K; k++)
        sum += number(x, i + k, p->a.dtype) * number(y, j + k, p->a.dtype);
    return sum;
}

/* One query of one head, by the definition. */
static void expect_query(struct problem *p, size_t b, size_t t, size_t h)
{
    const struct attention *a = &p->a;
    size_t T = (size_t)a->T, S = (size_t)a->S, H = (size_t)a->H, K = (size_t)a->K, row = b * T + t;
    size_t q = row * a->q_stride + h * K, out = row * p->Q + h * K;
    size_t begin = p->start ? (size_t)p->start[row] : 0, end = p->end ? (size_t)p->end[row] : S;
    if (a->causal && end > t + S - T + 1) end = t + S - T + 1;
    double *probs = heap(S * sizeof *probs), sum = 0, delta = 0;
    for (size_t s = begin; s < end; s++) {
        size_t k = (b * S + s) * a->kv_stride + h / (H / (size_t)a->G) * K;
        sum += probs[s] = exp((double)a->scale * dot(p, p->q, q, p->kv, k));
    }
    p->lse[(b * H + h) * T + t] = log(sum);
    for (size_t s = begin; s < end; s++) {
        size_t v = (b * S + s) * a->kv_stride + h / (H / (size_t)a->G) * K + p->P;
        probs[s] /= sum;
        for (size_t k = 0; k < K; k++) p->out[out + k] += probs[s] * number(p->kv, v + k, a->dtype);
    }
    for (size_t k = 0; k < K; k++) delta += p->out[out + k] * number(p->dout, out + k, a->dtype);
    for (size_t s = begin; s < end; s++) {
        size_t key = (b * S + s) * a->kv_stride + h / (H / (size_t)a->G) * K;
        double ds = (dot(p, p->dout, out, p->kv, key + p->P) - delta) * probs[s] * (double)a->scale;
        for (size_t k = 0; k < K; k++) {
            p->dq[out + k] += ds * number(p->kv, key + k, a->dtype);
            p->dkv[key + k] += ds * number(p->q, q + k, a->dtype);
            p->dkv[key + p->P + k] += probs[s] * number(p->dout, out + k, a->dtype);
        }
    }
    free(probs);
}

static void expect(struct problem *p)
{
    for (size_t b = 0; b < (size_t)p->a.B; b++)
        for (size_t t = 0; t < (size_t)p->a.T; t++)
            for (size_t h = 0; h < (size_t)p->a.H; h++) expect_query(p, b, t, h);
}

/* Compares the first n elements of each row; rows are got_row and row elements long. */
static void check_close(const char *what, const struct problem *p, int warp_size, const void *got,
                        enum dtype dtype, size_t got_row, const double *expected, size_t row,
                        size_t n, size_t rows)
{
    double error = 0, size = 0, tolerance = p->a.dtype == F32 ? 1e-5 : 1e-2;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            double x = number(got, r * got_row + i, dtype), y = expected[r * row + i];
            if (x == y) continue; /* both may be -inf */
            error += (x - y) * (x - y), size += y * y;
        }
    if (!(sqrt(error) <= tolerance * sqrt(size)))
        fail_msg("%s of T %d, S %d, H %d, K %d (%s, warps of %d): error %.3g of %.3g", what, p->a.T,
                 p->a.S, p->a.H, p->a.K, dtype_name(p->a.dtype), warp_size, sqrt(error),
                 sqrt(size));
}

/* --- a device --- */

struct emulated_device {
    struct queue *queue;
    int warp_size;
};

static void open_device(struct emulated_device *d, int warp_size)
{
    d->warp_size = warp_size;
    CHECK_STATUS(OK, warp_size == 32 ? gpu_emu32_open(&d->queue, 0) : gpu_emu64_open(&d->queue, 0));
    emulator_set_relaxed(true);
}

static void close_device(struct emulated_device *d)
{
    emulator_set_relaxed(false);
    arena_release(&d->queue->scratch);
    (d->warp_size == 32 ? gpu_emu32_close : gpu_emu64_close)(d->queue);
}

/* A sizing pass without buffers, then a run with exactly that scratch, filled with NaN. */
#define RUN(d, forward_or_backward, a, io, none)                                                   \
    do {                                                                                           \
        for (int run_ = 0; run_ < 2; run_++) {                                                     \
            size_t bytes_ = (d)->queue->scratch.peak;                                              \
            arena_release(&(d)->queue->scratch);                                                   \
            (d)->queue->sizing = !run_;                                                            \
            if (run_) CHECK_STATUS(OK, arena_init(&(d)->queue->scratch, bytes_, NULL));            \
            if (run_ && bytes_) memset((d)->queue->scratch.base, 0xFF, bytes_);                    \
            CHECK_STATUS(OK, (d)->warp_size == 32                                                  \
                                 ? gpu_emu32_flash_attention_##forward_or_backward(                \
                                       a, run_ ? io : none, (d)->queue)                            \
                                 : gpu_emu64_flash_attention_##forward_or_backward(                \
                                       a, run_ ? io : none, (d)->queue));                          \
        }                                                                                          \
    } while (0)

static void forward(const struct emulated_device *d, const struct attention *a,
                    const struct problem *p, const void *kv, void *out, float *lse)
{
    const void *v = (const char *)kv + p->P * dtype_bytes(a->dtype);
    struct attention_fwd none = {0}, io = {p->q, kv, v, p->start, p->end, out, lse};
    RUN(d, forward, a, &io, &none);
}

static void backward(const struct emulated_device *d, const struct attention *a,
                     const struct problem *p, const void *kv, const void *out, const float *lse,
                     void *dq, void *dkv)
{
    struct attention_bwd none = {0},
                         io = {.q_BTHK = p->q,
                               .k_BSGK = kv,
                               .v_BSGK = (const char *)kv + p->P * dtype_bytes(a->dtype),
                               .out_BTHK = out,
                               .dout_BTHK = p->dout,
                               .start_BT = p->start,
                               .end_BT = p->end,
                               .lse_BHT = lse,
                               .dq_BTHK = dq,
                               .dk_BSGK = dkv,
                               .dv_BSGK =
                                   (char *)dkv + p->P * dtype_bytes(a->keys ? F32 : a->dtype)};
    RUN(d, backward, a, &io, &none);
}

static void check_on(struct problem *p, int warp_size)
{
    struct emulated_device d;
    enum dtype dtype = p->a.dtype;
    size_t T = (size_t)(p->a.B * p->a.T), S = (size_t)(p->a.B * p->a.S);
    void *out = rig_random(4, p->n_out, dtype), *dq = rig_random(5, p->n_q, dtype);
    void *dkv = rig_random(6, p->n_kv, dtype);
    float *lse = rig_random(7, p->n_lse, F32);
    open_device(&d, warp_size);
    forward(&d, &p->a, p, p->kv, out, lse);
    backward(&d, &p->a, p, p->kv, out, lse, dq, dkv);
    close_device(&d);
    check_close("lse", p, warp_size, lse, F32, 1, p->lse, 1, 1, p->n_lse);
    check_close("out", p, warp_size, out, dtype, p->Q, p->out, p->Q, p->Q, T);
    check_close("dq", p, warp_size, dq, dtype, p->a.q_stride, p->dq, p->Q, p->Q, T);
    check_close("dk, dv", p, warp_size, dkv, dtype, p->a.kv_stride, p->dkv, p->a.kv_stride,
                2 * p->P, S);
    free(out), free(lse), free(dq), free(dkv);
}

static void check(struct attention a, int document, size_t padding)
{
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        a.dtype = (enum dtype)dtype;
        struct problem p = problem_make(a, document, padding);
        expect(&p);
        check_on(&p, 32), check_on(&p, 64);
        problem_release(&p);
    }
}

TEST(flash_attention_matches_the_definition_at_tile_edges)
{
    static const int sizes[] = {63, 64, 65, 128, 129};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (TEST_SLOWED && i != 2) continue;
        int T = sizes[i];
        check((struct attention){.B = 1, .T = T, .S = T, .H = 2, .G = 1, .K = 64, .causal = true},
              0, 8);
        check((struct attention){.B = 1, .T = T, .S = T + 31, .H = 1, .G = 1, .K = 16}, 48, 8);
    }
}

TEST(flash_attention_with_heads_of_128_matches_the_definition_at_tile_edges)
{
    static const int sizes[] = {47, 48, 49, 97};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (TEST_SLOWED && i != 2) continue;
        int T = sizes[i];
        struct attention a = {.B = 1, .T = T, .S = T, .H = 2, .G = 1, .K = 128};
        a.causal = i % 2, check(a, i % 2 ? 0 : 40, 8);
    }
}

TEST(flash_attention_supports_any_head_size_and_alignment)
{
    static const int sizes[] = {1, 7, 40, 72, 128, 200, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += TEST_SLOWED ? 2 : 1)
        for (size_t padding = 3; padding <= 8; padding += 5)
            check(
                (struct attention){
                    .B = 2, .T = 35, .S = 38, .H = 2, .G = 1, .K = sizes[i], .causal = true},
                padding == 3 ? 21 : 0, padding);
}

TEST(flash_attention_supports_other_key_counts_and_documents_across_tiles)
{
    check((struct attention){.B = 1, .T = 70, .S = 200, .H = 2, .G = 2, .K = 24, .causal = true},
          75, 8);
    check((struct attention){.B = 2, .T = 150, .S = 33, .H = 1, .G = 1, .K = 24}, 14, 0);
    check((struct attention){.B = 1, .T = 140, .S = 290, .H = 1, .G = 1, .K = 128}, 100, 0);
    check((struct attention){.B = 1, .T = 33, .S = 33, .H = 1, .G = 1, .K = 8, .scale = -0.5f}, 0,
          0);
}

/* Decoding: heads become rows of one tile, and several blocks split the keys. */
TEST(flash_attention_splits_the_keys_of_few_queries)
{
    check((struct attention){.B = 2, .T = 1, .S = 600, .H = 8, .G = 2, .K = 64, .causal = true}, 0,
          8);
    check((struct attention){.B = 1, .T = 3, .S = 700, .H = 2, .G = 1, .K = 20}, 550, 3);
}

TEST(flash_attention_splits_only_the_keys_that_a_window_reaches)
{
    struct attention a = {.B = 1, .T = 1, .S = 4096, .H = 2, .G = 1, .K = 32, .dtype = F32};
    struct emulated_device d;
    open_device(&d, 32);
    d.queue->sizing = true;
    a.scale = 1, a.causal = true, a.q_stride = 64, a.kv_stride = 32, a.window = 64;
    CHECK_STATUS(OK, gpu_emu32_flash_attention_forward(&a, &(struct attention_fwd){0}, d.queue));
    size_t windowed = d.queue->scratch.peak;
    a.window = 0;
    CHECK_STATUS(OK, gpu_emu32_flash_attention_forward(&a, &(struct attention_fwd){0}, d.queue));
    CHECK(!windowed && d.queue->scratch.peak);
    close_device(&d);
}

TEST(flash_attention_supports_a_scale_of_zero)
{
    struct attention a = {.B = 1, .T = 9, .S = 9, .H = 1, .G = 1, .K = 8, .causal = true};
    struct problem p = problem_make(a, 0, 0);
    p.a.scale = 0;
    expect(&p);
    check_on(&p, 32), check_on(&p, 64);
    problem_release(&p);
}

/* Three ring parts of the keys; the first and the last are split over several blocks. */
TEST(flash_attention_merges_ring_parts_with_split_keys)
{
    for (int warp_size = 32; warp_size <= 64; warp_size += 32) {
        struct attention a = {.B = 1, .T = 2, .S = 640, .H = 4, .G = 2, .K = 32, .dtype = F32};
        struct problem p = problem_make(a, 0, 0);
        struct emulated_device d;
        float *out = rig_random(4, p.n_out, F32), *lse = rig_random(5, p.n_lse, F32);
        float *dq = rig_random(6, p.n_out, F32), *dkv = rig_random(7, p.n_kv, F32);
        expect(&p);
        open_device(&d, warp_size);
        static const int at[] = {0, 300, 340, 640};
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < 3; i++) {
                struct attention part = p.a;
                size_t skip = (size_t)at[i] * p.a.kv_stride;
                part.S = at[i + 1] - at[i], part.keys = i ? MORE_KEYS : FIRST_KEYS;
                if (!pass)
                    forward(&d, &part, &p, (float *)p.kv + skip, out, lse);
                else
                    backward(&d, &part, &p, (float *)p.kv + skip, out, lse, dq, dkv + skip);
            }
        close_device(&d);
        check_close("lse", &p, warp_size, lse, F32, 1, p.lse, 1, 1, p.n_lse);
        check_close("out", &p, warp_size, out, F32, p.Q, p.out, p.Q, p.Q, 2);
        check_close("dq", &p, warp_size, dq, F32, p.Q, p.dq, p.Q, p.Q, 2);
        check_close("dk, dv", &p, warp_size, dkv, F32, 2 * p.P, p.dkv, 2 * p.P, 2 * p.P, 640);
        free(out), free(lse), free(dq), free(dkv);
        problem_release(&p);
    }
}

TEST(flash_attention_rejects_heads_above_256)
{
    struct attention a = {.B = 1, .T = 1, .S = 1, .H = 1, .G = 1, .K = 257, .dtype = BF16};
    struct emulated_device d;
    open_device(&d, 32);
    CHECK_STATUS(UNSUPPORTED, gpu_emu32_flash_attention_forward(&a, NULL, d.queue));
    CHECK_MESSAGE("heads of 257");
    CHECK_STATUS(UNSUPPORTED, gpu_emu32_flash_attention_backward(&a, NULL, d.queue));
    close_device(&d);
}
