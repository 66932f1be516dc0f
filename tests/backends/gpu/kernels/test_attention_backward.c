/* Our own attention, forward and backward, on emulated devices of either wave: sizes about those of
 * its tiles, against the definition in double, which keeps all T x S shares. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/flash_attention.h"
#include "backends/gpu/gpu.h"
#include "ops/rig.h"

#define DECLARE(wave)                                                                              \
    enum status gpu_emu##wave##_flash_forward(const struct attention *,                            \
                                              const struct attention_fwd *, struct queue *);       \
    enum status gpu_emu##wave##_flash_backward(const struct attention *,                           \
                                               const struct attention_bwd *, struct queue *);
DECLARE(32)
DECLARE(64)

/* Keys and values side by side. */
struct problem {
    struct attention a;
    size_t Q, P, n_q, n_kv, n_out, n_lse;
    void *q, *kv, *dout;
    int32_t *start, *end;
    double *out, *lse, *dq, *dkv; /* what is wanted; dq dense */
};

/* `past`: by so many numbers a row is longer than it need be.  Every sixth query sees nothing where
 * there are documents. */
static struct problem problem_make(struct attention a, int document, size_t past)
{
    struct problem p = {.a = a, .Q = (size_t)(a.H * a.K), .P = (size_t)(a.G * a.K)};
    size_t T = (size_t)(a.B * a.T), S = (size_t)(a.B * a.S);
    p.a.q_stride = p.Q + past, p.a.kv_stride = 2 * p.P + past;
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
static void want_query(struct problem *p, size_t b, size_t t, size_t h)
{
    const struct attention *a = &p->a;
    size_t T = (size_t)a->T, S = (size_t)a->S, H = (size_t)a->H, K = (size_t)a->K, row = b * T + t;
    size_t q = row * a->q_stride + h * K, out = row * p->Q + h * K;
    size_t begin = p->start ? (size_t)p->start[row] : 0, end = p->end ? (size_t)p->end[row] : S;
    if (a->causal && end > t + S - T + 1) end = t + S - T + 1;
    double *share = heap(S * sizeof *share), sum = 0, delta = 0;
    for (size_t s = begin; s < end; s++) {
        size_t k = (b * S + s) * a->kv_stride + h / (H / (size_t)a->G) * K;
        sum += share[s] = exp((double)a->scale * dot(p, p->q, q, p->kv, k));
    }
    p->lse[(b * H + h) * T + t] = log(sum);
    for (size_t s = begin; s < end; s++) {
        size_t v = (b * S + s) * a->kv_stride + h / (H / (size_t)a->G) * K + p->P;
        share[s] /= sum;
        for (size_t k = 0; k < K; k++) p->out[out + k] += share[s] * number(p->kv, v + k, a->dtype);
    }
    for (size_t k = 0; k < K; k++) delta += p->out[out + k] * number(p->dout, out + k, a->dtype);
    for (size_t s = begin; s < end; s++) {
        size_t key = (b * S + s) * a->kv_stride + h / (H / (size_t)a->G) * K;
        double ds = (dot(p, p->dout, out, p->kv, key + p->P) - delta) * share[s] * (double)a->scale;
        for (size_t k = 0; k < K; k++) {
            p->dq[out + k] += ds * number(p->kv, key + k, a->dtype);
            p->dkv[key + k] += ds * number(p->q, q + k, a->dtype);
            p->dkv[key + p->P + k] += share[s] * number(p->dout, out + k, a->dtype);
        }
    }
    free(share);
}

static void want(struct problem *p)
{
    for (size_t b = 0; b < (size_t)p->a.B; b++)
        for (size_t t = 0; t < (size_t)p->a.T; t++)
            for (size_t h = 0; h < (size_t)p->a.H; h++) want_query(p, b, t, h);
}

/* `got`, of rows of got_row numbers, against `wanted`, of rows of row, the first n of each. */
static void check_close(const char *what, const struct problem *p, int wave, const void *got,
                        enum dtype dtype, size_t got_row, const double *wanted, size_t row,
                        size_t n, size_t rows)
{
    double off = 0, size = 0, most = p->a.dtype == F32 ? 1e-5 : 1e-2;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            double x = number(got, r * got_row + i, dtype), y = wanted[r * row + i];
            if (x == y) continue; /* both may be -inf */
            off += (x - y) * (x - y), size += y * y;
        }
    if (!(sqrt(off) <= most * sqrt(size)))
        fail_msg("%s of T %d, S %d, H %d, K %d (%s, wave of %d): off by %.3g of %.3g", what, p->a.T,
                 p->a.S, p->a.H, p->a.K, dtype_name(p->a.dtype), wave, sqrt(off), sqrt(size));
}

/* ---- a device ---- */

struct emulated {
    struct queue *on;
    int wave;
};

static void on_device(struct emulated *d, int wave)
{
    d->wave = wave;
    CHECK_STATUS(OK, wave == 32 ? gpu_emu32_open(&d->on, 0) : gpu_emu64_open(&d->on, 0));
    gpu_emulator_plain(true);
}

static void off_device(struct emulated *d)
{
    gpu_emulator_plain(false);
    arena_release(&d->on->scratch);
    (d->wave == 32 ? gpu_emu32_close : gpu_emu64_close)(d->on);
}

/* Measures with no buffers at hand, and runs with the scratch that was asked for, full of NaN. */
#define RUN(d, forward_or_backward, a, io, none)                                                   \
    do {                                                                                           \
        for (int run_ = 0; run_ < 2; run_++) {                                                     \
            size_t bytes_ = (d)->on->scratch.peak;                                                 \
            arena_release(&(d)->on->scratch);                                                      \
            (d)->on->measuring = !run_;                                                            \
            if (run_) CHECK_STATUS(OK, arena_init(&(d)->on->scratch, bytes_, NULL));               \
            if (run_ && bytes_) memset((d)->on->scratch.base, 0xFF, bytes_);                       \
            CHECK_STATUS(                                                                          \
                OK, (d)->wave == 32                                                                \
                        ? gpu_emu32_flash_##forward_or_backward(a, run_ ? io : none, (d)->on)      \
                        : gpu_emu64_flash_##forward_or_backward(a, run_ ? io : none, (d)->on));    \
        }                                                                                          \
    } while (0)

static void forward(const struct emulated *d, const struct attention *a, const struct problem *p,
                    const void *kv, void *out, float *lse)
{
    const void *v = (const char *)kv + p->P * dtype_bytes(a->dtype);
    struct attention_fwd none = {0}, io = {p->q, kv, v, p->start, p->end, out, lse};
    RUN(d, forward, a, &io, &none);
}

static void backward(const struct emulated *d, const struct attention *a, const struct problem *p,
                     const void *kv, const void *out, const float *lse, void *dq, void *dkv)
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

static void check_on(struct problem *p, int wave)
{
    struct emulated d;
    enum dtype dtype = p->a.dtype;
    size_t T = (size_t)(p->a.B * p->a.T), S = (size_t)(p->a.B * p->a.S);
    void *out = rig_random(4, p->n_out, dtype), *dq = rig_random(5, p->n_q, dtype);
    void *dkv = rig_random(6, p->n_kv, dtype);
    float *lse = rig_random(7, p->n_lse, F32);
    on_device(&d, wave);
    forward(&d, &p->a, p, p->kv, out, lse);
    backward(&d, &p->a, p, p->kv, out, lse, dq, dkv);
    off_device(&d);
    check_close("lse", p, wave, lse, F32, 1, p->lse, 1, 1, p->n_lse);
    check_close("out", p, wave, out, dtype, p->Q, p->out, p->Q, p->Q, T);
    check_close("dq", p, wave, dq, dtype, p->a.q_stride, p->dq, p->Q, p->Q, T);
    check_close("dk, dv", p, wave, dkv, dtype, p->a.kv_stride, p->dkv, p->a.kv_stride, 2 * p->P, S);
    free(out), free(lse), free(dq), free(dkv);
}

static void check(struct attention a, int document, size_t past)
{
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        a.dtype = (enum dtype)dtype;
        struct problem p = problem_make(a, document, past);
        want(&p);
        check_on(&p, 32), check_on(&p, 64);
        problem_release(&p);
    }
}

TEST(flash_attention_is_right_at_the_edges_of_tiles)
{
    static const int sizes[] = {63, 64, 65, 128, 129};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int T = sizes[i];
        check((struct attention){.B = 1, .T = T, .S = T, .H = 2, .G = 1, .K = 64, .causal = true},
              0, 8);
        check((struct attention){.B = 1, .T = T, .S = T + 31, .H = 1, .G = 1, .K = 16}, 48, 8);
    }
}

TEST(flash_attention_takes_heads_of_any_size_and_rows_that_lie_anywhere)
{
    static const int sizes[] = {1, 7, 40, 72, 128, 200, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t past = 3; past <= 8; past += 5)
            check(
                (struct attention){
                    .B = 2, .T = 35, .S = 38, .H = 2, .G = 1, .K = sizes[i], .causal = true},
                past == 3 ? 21 : 0, past);
}

TEST(flash_attention_has_more_keys_than_queries_or_fewer_and_documents_across_tiles)
{
    check((struct attention){.B = 1, .T = 70, .S = 200, .H = 2, .G = 2, .K = 24, .causal = true},
          75, 8);
    check((struct attention){.B = 2, .T = 150, .S = 33, .H = 1, .G = 1, .K = 24}, 14, 0);
    check((struct attention){.B = 1, .T = 140, .S = 290, .H = 1, .G = 1, .K = 128}, 100, 0);
    check((struct attention){.B = 1, .T = 33, .S = 33, .H = 1, .G = 1, .K = 8, .scale = -0.5f}, 0,
          0);
}

/* Several blocks share the keys of one tile, in which the heads are rows. */
TEST(flash_attention_of_a_few_queries_shares_out_the_keys)
{
    check((struct attention){.B = 2, .T = 1, .S = 600, .H = 8, .G = 2, .K = 64, .causal = true}, 0,
          8);
    check((struct attention){.B = 1, .T = 3, .S = 700, .H = 2, .G = 1, .K = 20}, 550, 3);
}

TEST(flash_attention_scales_by_nothing)
{
    struct attention a = {.B = 1, .T = 9, .S = 9, .H = 1, .G = 1, .K = 8, .causal = true};
    struct problem p = problem_make(a, 0, 0);
    p.a.scale = 0;
    want(&p);
    check_on(&p, 32), check_on(&p, 64);
    problem_release(&p);
}

/* Keys in two parts, one of them to itself shared out among blocks. */
TEST(flash_attention_joins_parts_whose_keys_are_shared_out)
{
    for (int wave = 32; wave <= 64; wave += 32) {
        struct attention a = {.B = 1, .T = 2, .S = 640, .H = 4, .G = 2, .K = 32, .dtype = F32};
        struct problem p = problem_make(a, 0, 0);
        struct emulated d;
        float *out = rig_random(4, p.n_out, F32), *lse = rig_random(5, p.n_lse, F32);
        float *dq = rig_random(6, p.n_out, F32), *dkv = rig_random(7, p.n_kv, F32);
        want(&p);
        on_device(&d, wave);
        static const int at[] = {0, 600, 640};
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < 2; i++) {
                struct attention part = p.a;
                size_t skip = (size_t)at[i] * p.a.kv_stride;
                part.S = at[i + 1] - at[i], part.keys = i ? MORE_KEYS : FIRST_KEYS;
                if (!pass)
                    forward(&d, &part, &p, (float *)p.kv + skip, out, lse);
                else
                    backward(&d, &part, &p, (float *)p.kv + skip, out, lse, dq, dkv + skip);
            }
        off_device(&d);
        check_close("lse", &p, wave, lse, F32, 1, p.lse, 1, 1, p.n_lse);
        check_close("out", &p, wave, out, F32, p.Q, p.out, p.Q, p.Q, 2);
        check_close("dq", &p, wave, dq, F32, p.Q, p.dq, p.Q, p.Q, 2);
        check_close("dk, dv", &p, wave, dkv, F32, 2 * p.P, p.dkv, 2 * p.P, 2 * p.P, 640);
        free(out), free(lse), free(dq), free(dkv);
        problem_release(&p);
    }
}

TEST(flash_attention_refuses_heads_that_are_too_large)
{
    struct attention a = {.B = 1, .T = 1, .S = 1, .H = 1, .G = 1, .K = 257, .dtype = BF16};
    struct emulated d;
    on_device(&d, 32);
    CHECK_STATUS(UNSUPPORTED, gpu_emu32_flash_forward(&a, NULL, d.on));
    CHECK_MESSAGE("heads of 257");
    CHECK_STATUS(UNSUPPORTED, gpu_emu32_flash_backward(&a, NULL, d.on));
    off_device(&d);
}
