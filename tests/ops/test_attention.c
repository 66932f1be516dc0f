// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "base/rng.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/rope.h"

/* q, k, v in one fused row, as in the model; a mask of documents of `document` tokens, 0: none. */
struct problem {
    struct attention a;
    size_t C; /* fused row */
    void *qkv, *dout, *out, *dqkv;
    float *lse;
    int32_t *start, *end;
};

static struct problem problem_make(int B, int T, int H, int G, int K, bool causal, int document,
                                   enum dtype dtype)
{
    struct problem p = {.C = (size_t)(H + 2 * G) * (size_t)K};
    size_t rows = (size_t)B * (size_t)T, Q = (size_t)H * (size_t)K;
    p.a = (struct attention){
        B, T, T, H, G, K, p.C, p.C, 1 / sqrtf((float)K), causal, dtype, .keys = ALL_KEYS};
    p.qkv = rig_random(1, rows * p.C, dtype), p.dqkv = rig_zeros(rows * p.C, dtype);
    p.dout = rig_random(2, rows * Q, dtype), p.out = rig_zeros(rows * Q, dtype);
    p.lse = rig_zeros(rows * (size_t)H, F32);
    if (!document) return p;
    p.start = heap(rows * sizeof *p.start), p.end = heap(rows * sizeof *p.end);
    for (int i = 0; i < B * T; i++) {
        int t = i % T, first = t / document * document;
        p.start[i] = first;
        p.end[i] = first + document < T ? first + document : T;
    }
    return p;
}

static void problem_release(struct problem *p)
{
    free(p->qkv), free(p->dqkv), free(p->dout), free(p->out), free(p->lse);
    free(p->start), free(p->end);
}

static const void *at(const void *x, size_t elements, enum dtype dtype)
{
    return (const char *)x + elements * dtype_bytes(dtype);
}

static void run_forward(const struct ops *ops, struct problem *p)
{
    size_t Q = (size_t)p->a.H * (size_t)p->a.K, P = (size_t)p->a.G * (size_t)p->a.K;
    struct attention_fwd io = {
        p->qkv, at(p->qkv, Q, p->a.dtype), at(p->qkv, Q + P, p->a.dtype), p->start, p->end, p->out,
        p->lse};
    RIG_RUN(attention_forward(ops, &p->a, &io, rig_queue()));
}

static void run_backward(const struct ops *ops, struct problem *p)
{
    size_t Q = (size_t)p->a.H * (size_t)p->a.K, P = (size_t)p->a.G * (size_t)p->a.K;
    enum dtype d = p->a.dtype;
    struct attention_bwd io = {.q_BTHK = p->qkv,
                               .k_BSGK = at(p->qkv, Q, d),
                               .v_BSGK = at(p->qkv, Q + P, d),
                               .out_BTHK = p->out,
                               .dout_BTHK = p->dout,
                               .start_BT = p->start,
                               .end_BT = p->end,
                               .lse_BHT = p->lse,
                               .dq_BTHK = p->dqkv,
                               .dk_BSGK = (char *)p->dqkv + Q * dtype_bytes(d),
                               .dv_BSGK = (char *)p->dqkv + (Q + P) * dtype_bytes(d)};
    RIG_RUN(attention_backward(ops, &p->a, &io, rig_queue()));
}

/* Results of the reference, which is slow: computed once for the kernels of all backends. */
static const struct problem *expected;

static void compare_backend(void)
{
    struct problem fast = *expected;
    enum dtype dtype = fast.a.dtype;
    size_t rows = (size_t)fast.a.B * (size_t)fast.a.T, Q = (size_t)fast.a.H * (size_t)fast.a.K;
    fast.out = rig_zeros(rows * Q, dtype), fast.dqkv = rig_zeros(rows * fast.C, dtype);
    fast.lse = rig_zeros(rows * (size_t)fast.a.H, F32);
    run_forward(rig_fast(), &fast);
    RIG_CLOSE(fast.out, expected->out, rows * Q, dtype);
    RIG_CLOSE_LSE(fast.lse, expected->lse, rows * (size_t)fast.a.H, dtype);
    memcpy(fast.out, expected->out, rows * Q * dtype_bytes(dtype));
    run_backward(rig_fast(), &fast);
    RIG_CLOSE(fast.dqkv, expected->dqkv, rows * fast.C, dtype);
    free(fast.out), free(fast.dqkv), free(fast.lse);
}

static void compare_problem(struct problem plain)
{
    run_forward(&ops_cpu_reference, &plain);
    run_backward(&ops_cpu_reference, &plain);
    expected = &plain;
    rig_each_backend(compare_backend);
    expected = NULL;
    problem_release(&plain);
}

static void compare(int B, int T, int H, int G, int K, bool causal, int document, enum dtype dtype)
{
    compare_problem(problem_make(B, T, H, G, K, causal, document, dtype));
}

TEST(attention_agrees_with_the_reference_under_every_mask)
{
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int causal = 0; causal < 2; causal++) {
            compare(1, 1, 1, 1, 1, causal, 0, (enum dtype)d);
            compare(2, 7, 4, 2, 6, causal, 0, (enum dtype)d);
            compare(1, 65, 3, 1, 16, causal, 0, (enum dtype)d);
            compare(2, 70, 2, 2, 20, causal, 9, (enum dtype)d);
            if (TEST_SLOWED && d) continue;
            compare(1, 130, 2, 1, 32, causal, 50, (enum dtype)d);
            if (TEST_SLOWED) continue;
            compare(1, 300, 2, 1, 40, causal, 0, (enum dtype)d);
            compare(1, 300, 1, 1, 64, causal, 140, (enum dtype)d);
        }
}

TEST(attention_agrees_with_the_reference_under_sliding_windows)
{
    static const struct {
        int T, K, window, document;
    } cases[] = {{7, 6, 1, 0},     {65, 16, 5, 0},     {70, 20, 31, 9}, {100, 32, 99, 0},
                 {130, 32, 40, 0}, {300, 64, 70, 140}, {300, 8, 32, 0}, {20, 8, 1000, 0}};
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct problem p = problem_make(i % 2 + 1, cases[i].T, 2, 1, cases[i].K, true,
                                            cases[i].document, (enum dtype)d);
            p.a.window = cases[i].window;
            if (TEST_SLOWED && cases[i].T > 100)
                problem_release(&p);
            else
                compare_problem(p);
        }
}

TEST(attention_with_a_window_is_attention_to_a_document_that_begins_with_it)
{
    enum { T = 20, WINDOW = 6 };
    struct problem p = problem_make(1, T, 2, 1, 8, true, T, F32);
    struct problem window = problem_make(1, T, 2, 1, 8, true, 0, F32);
    for (int t = 0; t < T; t++) p.start[t] = t >= WINDOW ? t + 1 - WINDOW : 0;
    window.a.window = WINDOW;
    run_forward(&ops_cpu_reference, &p), run_forward(&ops_cpu_reference, &window);
    run_backward(&ops_cpu_reference, &p), run_backward(&ops_cpu_reference, &window);
    CHECK(!memcmp(p.out, window.out, T * 16 * sizeof(float)));
    CHECK(!memcmp(p.dqkv, window.dqkv, T * p.C * sizeof(float)));
    problem_release(&p), problem_release(&window);
    struct attention wrong = {.B = 1, .T = 2, .S = 2, .H = 1, .G = 1, .K = 4, .window = 1};
    wrong.q_stride = wrong.kv_stride = 4;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &wrong, NULL, rig_queue()));
    CHECK_MESSAGE("window 1 without a causal mask");
}

OPS_TEST(attention_has_the_same_bits_on_one_thread_and_two)
{
    struct problem one = problem_make(2, 100, 4, 2, 24, true, 0, BF16);
    struct problem two = problem_make(2, 100, 4, 2, 24, true, 0, BF16);
    rig_queue()->num_threads = 1;
    run_forward(rig_fast(), &one), run_backward(rig_fast(), &one);
    rig_queue()->num_threads = 2;
    run_forward(rig_fast(), &two), run_backward(rig_fast(), &two);
    CHECK(!memcmp(one.out, two.out, 2 * 100 * 4 * 24 * 2));
    CHECK(!memcmp(one.dqkv, two.dqkv, 2 * 100 * one.C * 2));
    problem_release(&one), problem_release(&two);
}

/* Results of the attention half of a block: y forward, gradients backward. */
struct half_block {
    size_t x_n, wide_n, narrow_n;
    void *y, *dx;
    float *lse, *dwide, *dnarrow;
};

/* Tensors between x and y are all packed, or none. */
static struct half_block half_block_of(const struct ops *ops, struct attention a, int d, int J,
                                       bool packed)
{
    size_t N = (size_t)(a.B * a.T), D = (size_t)d, C = a.q_stride, Q = (size_t)(a.H * a.K);
    size_t angles = (size_t)(a.T * J);
    enum dtype dtype = a.dtype;
    struct half_block h = {.x_n = N * D, .wide_n = C * D, .narrow_n = Q * D};
    struct linear in = {.N = (int)N, .D = d, .F = (int)C, .dtype = dtype, .y_packed = packed};
    struct linear out = {.N = (int)N, .D = (int)Q, .F = d, .dtype = dtype, .x_packed = packed};
    struct rope rotate = {a.B, a.T, a.H + a.G, a.K, J, 0, C, dtype, false, packed}, back = rotate;
    back.inverse = true, a.is_packed = packed;
    float *c = rig_zeros(angles, F32), *s = rig_zeros(angles, F32);
    void *x = rig_random(1, N * D, dtype), *dy = rig_random(2, N * D, dtype);
    void *wide = rig_random(3, C * D, dtype), *narrow = rig_random(4, Q * D, dtype);
    void *qkv = rig_zeros(N * C, dtype), *dqkv = rig_zeros(N * C, dtype);
    void *seen = rig_zeros(N * Q, dtype), *dseen = rig_zeros(N * Q, dtype);
    h.y = rig_zeros(N * D, dtype), h.dx = rig_zeros(N * D, dtype);
    h.lse = rig_zeros(N * (size_t)a.H, F32);
    h.dwide = rig_zeros(C * D, F32), h.dnarrow = rig_zeros(Q * D, F32);
    rope_table(a.T, &(struct rope_angles){J, 10000, NULL, 0}, c, s);
    size_t k = packed ? 0 : a.k_column, v = packed ? 0 : a.v_column;
    struct attention_fwd forward = {.q_BTHK = qkv,
                                    .k_BSGK = at(qkv, k, dtype),
                                    .v_BSGK = at(qkv, v, dtype),
                                    .out_BTHK = seen,
                                    .lse_BHT = h.lse};
    struct attention_bwd backward = {.q_BTHK = qkv,
                                     .k_BSGK = at(qkv, k, dtype),
                                     .v_BSGK = at(qkv, v, dtype),
                                     .out_BTHK = seen,
                                     .dout_BTHK = dseen,
                                     .lse_BHT = h.lse,
                                     .dq_BTHK = dqkv,
                                     .dk_BSGK = (char *)dqkv + k * dtype_bytes(dtype),
                                     .dv_BSGK = (char *)dqkv + v * dtype_bytes(dtype)};
    struct linear_fwd to_qkv = {.x_ND = x, .w_FD = wide, .y_NF = qkv};
    struct linear_fwd to_y = {.x_ND = seen, .w_FD = narrow, .y_NF = h.y};
    struct linear_bwd_input to_seen = {.dy_NF = dy, .w_FD = narrow, .dx_ND = dseen};
    struct linear_bwd_input to_x = {.dy_NF = dqkv, .w_FD = wide, .dx_ND = h.dx};
    struct linear_bwd_weight to_narrow = {.dy_NF = dy, .x_ND = seen, .dw_FD = h.dnarrow};
    struct linear_bwd_weight to_wide = {.dy_NF = dqkv, .x_ND = x, .dw_FD = h.dwide};
    struct queue *queue = rig_queue();
    RIG_RUN(linear_forward(ops, &in, &to_qkv, queue));
    CHECK_STATUS(OK, rope(ops, &rotate, &(struct rope_io){qkv, c, s, NULL}, queue));
    RIG_RUN(attention_forward(ops, &a, &forward, queue));
    RIG_RUN(linear_forward(ops, &out, &to_y, queue));
    RIG_RUN(linear_backward_input(ops, &out, &to_seen, queue));
    RIG_RUN(linear_backward_weight(ops, &out, &to_narrow, queue));
    RIG_RUN(attention_backward(ops, &a, &backward, queue));
    CHECK_STATUS(OK, rope(ops, &back, &(struct rope_io){dqkv, c, s, NULL}, queue));
    RIG_RUN(linear_backward_input(ops, &in, &to_x, queue));
    RIG_RUN(linear_backward_weight(ops, &in, &to_wide, queue));
    free(c), free(s), free(x), free(dy), free(wide), free(narrow);
    free(qkv), free(dqkv), free(seen), free(dseen);
    return h;
}

static void half_block_release(struct half_block *h)
{
    free(h->y), free(h->dx), free(h->lse), free(h->dwide), free(h->dnarrow);
}

OPS_TEST(packed_tensors_of_attention_change_no_bit)
{
    static const struct {
        int B, T, H, G, K, J, d, can_pack;
    } sizes[] = {{3, 32, 1, 1, 32, 16, 32, 1},  {2, 64, 2, 1, 64, 32, 48, 1},
                 {1, 320, 3, 3, 64, 24, 32, 1}, {2, 96, 4, 2, 96, 48, 96, 1},
                 {1, 288, 2, 1, 128, 48, 7, 1}, {2, 64, 3, 1, 96, 36, 32, 1},
                 {3, 32, 2, 1, 64, 17, 32, 1},  {2, 48, 2, 1, 64, 32, 32, 0},
                 {2, 64, 2, 2, 80, 40, 64, 0},  {8, 16, 4, 2, 32, 16, 32, 0}};
    bool tiles = strstr(rig_fast()->backend, "amx");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = 0; d < DTYPE_COUNT; d++) {
            int B = sizes[i].B, T = sizes[i].T, H = sizes[i].H, G = sizes[i].G, K = sizes[i].K;
            size_t Q = (size_t)(H * K), C = (size_t)((H + 2 * G) * K);
            struct attention a = {.B = B, .T = T, .S = T, .H = H, .G = G, .K = K};
            a.q_stride = a.kv_stride = C, a.k_column = Q, a.v_column = Q + (size_t)(G * K);
            a.scale = 1 / sqrtf((float)K), a.causal = i % 2 == 0, a.dtype = (enum dtype)d;
            bool can_pack = attention_can_pack(rig_fast(), &a);
            CHECK(can_pack == (tiles && a.dtype == BF16 && sizes[i].can_pack));
            if (!can_pack) continue;
            struct half_block h[2];
            for (int k = 0; k < 2; k++)
                h[k] = half_block_of(rig_fast(), a, sizes[i].d, sizes[i].J, k);
            CHECK(!memcmp(h[0].y, h[1].y, h[0].x_n * sizeof(bf16)));
            CHECK(!memcmp(h[0].dx, h[1].dx, h[0].x_n * sizeof(bf16)));
            CHECK(!memcmp(h[0].lse, h[1].lse, (size_t)(B * T * H) * sizeof(float)));
            CHECK(!memcmp(h[0].dwide, h[1].dwide, h[0].wide_n * sizeof(float)));
            CHECK(!memcmp(h[0].dnarrow, h[1].dnarrow, h[0].narrow_n * sizeof(float)));
            for (int k = 0; k < 2; k++) half_block_release(&h[k]);
        }
}

OPS_TEST(attention_ignores_later_tokens_and_other_documents)
{
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        struct problem p = problem_make(1, 20, 2, 1, 8, true, 10, F32);
        float before[20 * 16], *qkv = p.qkv;
        run_forward(ops, &p);
        memcpy(before, p.out, sizeof before);
        for (size_t i = 12 * p.C; i < 13 * p.C; i++) qkv[i] += 5; /* token 12 */
        run_forward(ops, &p);
        CHECK(!memcmp(before, p.out, 12 * 16 * sizeof *before));
        CHECK(memcmp(before + 15 * 16, (float *)p.out + 15 * 16, 16 * sizeof *before));
        for (size_t i = 0; i < 10 * p.C; i++) qkv[i] += 5; /* the first document */
        memcpy(before, p.out, sizeof before);
        run_forward(ops, &p);
        CHECK(!memcmp(before + 10 * 16, (float *)p.out + 10 * 16, 10 * 16 * sizeof *before));
        problem_release(&p);
    }
}

OPS_TEST(attention_of_the_last_queries_matches_attention_of_all)
{
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        struct problem p = problem_make(1, 75, 4, 2, 16, true, 0, F32);
        float out[5 * 64], lse[4 * 5];
        run_forward(ops, &p);
        struct attention last = p.a;
        last.T = 5;
        struct attention_fwd io = {(float *)p.qkv + 70 * p.C,
                                   (float *)p.qkv + 64,
                                   (float *)p.qkv + 64 + 32,
                                   NULL,
                                   NULL,
                                   out,
                                   lse};
        RIG_RUN(attention_forward(ops, &last, &io, rig_queue()));
        rig_check_close("out", out, (float *)p.out + 70 * 64, sizeof out / sizeof *out, F32, 1e-6);
        problem_release(&p);
    }
}

static double loss(void *context)
{
    struct problem *p = context;
    run_forward(&ops_cpu_reference, p);
    return rig_dot(p->out, p->dout,
                   (size_t)p->a.B * (size_t)p->a.T * (size_t)p->a.H * (size_t)p->a.K);
}

TEST(attention_gradients_match_finite_differences)
{
    for (int variant = 0; variant < 4; variant++) {
        struct problem p = problem_make(1, 6, 4, 2, 4, variant & 1, variant & 2 ? 4 : 0, F32);
        loss(&p);
        run_backward(&ops_cpu_reference, &p);
        rig_check_gradient("qkv", p.qkv, 6 * p.C, p.dqkv, loss, &p);
        problem_release(&p);
    }
}

TEST(attention_rejects_invalid_sizes_and_strides)
{
    const struct attention fine = {1, 2, 2, 2, 2, 8, 16, 16, 1, true, F32, .keys = ALL_KEYS};
    struct attention heads = fine, keys = fine, none = fine, stride = fine;
    heads.H = 4, heads.G = 3, heads.q_stride = 32, heads.kv_stride = 24;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &heads, NULL, rig_queue()));
    CHECK_MESSAGE("4 query heads are not a multiple of 3");
    keys.T = 3;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &keys, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, attention_backward(&ops_cpu_reference, &keys, NULL, rig_queue()));
    none.S = 0, none.causal = false;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &none, NULL, rig_queue()));
    stride.q_stride = 15;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &stride, NULL, rig_queue()));
}

/* Queries with random key bounds, some of them empty.  Keys and values are columns of one row. */
struct sparse {
    struct attention a;
    size_t Q, P;
    void *q, *kv, *dout, *out;
    float *lse, *dq, *dkv;
    int32_t *start, *end;
};

static size_t queries_of(const struct sparse *p) { return (size_t)p->a.B * (size_t)p->a.T; }
static size_t keys_of(const struct sparse *p) { return (size_t)p->a.B * (size_t)p->a.S; }

static struct sparse sparse_make(int T, int S, enum dtype dtype)
{
    enum { B = 2, H = 4, G = 2, K = 20 };
    struct sparse p = {.Q = H * K, .P = G * K};
    p.a = (struct attention){.B = B,
                             .T = T,
                             .S = S,
                             .H = H,
                             .G = G,
                             .K = K,
                             .q_stride = p.Q + 3,
                             .kv_stride = 2 * p.P,
                             .scale = 0.2f,
                             .dtype = dtype};
    size_t queries = queries_of(&p), keys = keys_of(&p);
    p.q = rig_random(1, queries * p.a.q_stride, dtype);
    p.kv = rig_random(2, keys * 2 * p.P, dtype);
    p.dout = rig_random(3, queries * p.Q, dtype), p.out = rig_zeros(queries * p.Q, dtype);
    p.lse = rig_zeros(queries * H, F32), p.dq = rig_zeros(queries * p.a.q_stride, F32);
    p.dkv = rig_zeros(keys * 2 * p.P, F32);
    p.start = heap(queries * sizeof *p.start), p.end = heap(queries * sizeof *p.end);
    for (size_t i = 0; i < queries; i++) {
        int x = (int)(rng_uniform(4, RNG_TEST, 0, i) * S), y = (int)(i * 7 % (size_t)S);
        p.start[i] = x < y ? x : y, p.end[i] = i % 5 == 2 ? p.start[i] : x < y ? y : x;
    }
    return p;
}

static void sparse_release(struct sparse *p)
{
    free(p->q), free(p->kv), free(p->dout), free(p->out), free(p->lse), free(p->dq), free(p->dkv);
    free(p->start), free(p->end);
}

static void *values(const struct sparse *p, const void *kv, enum dtype dtype)
{
    return (char *)(uintptr_t)kv + p->P * dtype_bytes(dtype);
}

static void sparse_forward(const struct ops *ops, const struct attention *a, struct sparse *p,
                           const void *kv, const int32_t *start, const int32_t *end, void *out)
{
    struct attention_fwd io = {p->q, kv, values(p, kv, a->dtype), start, end, out, p->lse};
    RIG_RUN(attention_forward(ops, a, &io, rig_queue()));
}

static void sparse_backward(const struct ops *ops, const struct attention *a, struct sparse *p,
                            const void *kv, const int32_t *start, const int32_t *end, void *dq,
                            void *dkv)
{
    struct attention_bwd io = {.q_BTHK = p->q,
                               .k_BSGK = kv,
                               .v_BSGK = values(p, kv, a->dtype),
                               .out_BTHK = p->out,
                               .dout_BTHK = p->dout,
                               .start_BT = start,
                               .end_BT = end,
                               .lse_BHT = p->lse,
                               .dq_BTHK = dq,
                               .dk_BSGK = dkv,
                               .dv_BSGK = values(p, dkv, a->keys ? F32 : a->dtype)};
    RIG_RUN(attention_backward(ops, a, &io, rig_queue()));
}

/* Keys [first, first + count) of every row, and each query's bounds within them. */
struct part {
    int first, count;
    void *kv;
    int32_t *start, *end;
};

static int clamp(int x, int most) { return x < 0 ? 0 : x > most ? most : x; }

static struct part part_make(const struct sparse *p, int first, int count)
{
    size_t row = p->a.kv_stride * dtype_bytes(p->a.dtype), queries = queries_of(p);
    struct part c = {first, count, NULL, heap(queries * 4), heap(queries * 4)};
    c.kv = heap((size_t)(p->a.B * count) * row);
    for (int b = 0; b < p->a.B; b++)
        memcpy((char *)c.kv + (size_t)(b * count) * row,
               (char *)p->kv + (size_t)(b * p->a.S + first) * row, (size_t)count * row);
    for (size_t i = 0; i < queries; i++) {
        c.start[i] = clamp(p->start[i] - first, count);
        c.end[i] = clamp(p->end[i] - first, count);
    }
    return c;
}

static void part_release(struct part *c) { free(c->kv), free(c->start), free(c->end); }

/* Converts f32 to the dtype. */
static void narrow(const float *x, size_t n, enum dtype dtype, void *to)
{
    for (size_t i = 0; i < n; i++)
        if (dtype == F32)
            ((float *)to)[i] = x[i];
        else
            ((bf16 *)to)[i] = bf16_from_f32(x[i]);
}

/* Compares attention to all keys by the reference with attention in up to three parts, last first.
 */
static void compare_parts(const struct ops *ops, int T, int S, enum dtype dtype)
{
    struct sparse want = sparse_make(T, S, dtype), got = sparse_make(T, S, dtype);
    size_t n = queries_of(&want) * want.Q, lses = queries_of(&want) * (size_t)want.a.H;
    size_t stride = want.a.q_stride, keys = keys_of(&want) * 2 * want.P;
    float *out = rig_zeros(n, F32), *dq = rig_zeros(n, F32), *dkv = rig_zeros(keys, F32);
    void *dq_narrow = rig_zeros(n, dtype), *dkv_narrow = rig_zeros(keys, dtype);
    int at[] = {0, S / 4, S / 4 + 2, S};
    if (at[2] > S) at[2] = at[1];
    struct attention a = got.a;
    sparse_forward(&ops_cpu_reference, &want.a, &want, want.kv, want.start, want.end, want.out);
    sparse_backward(&ops_cpu_reference, &want.a, &want, want.kv, want.start, want.end, want.dq,
                    want.dkv);
    for (int i = 2; i >= 0; i--) {
        struct part c = part_make(&got, at[i], at[i + 1] - at[i]);
        a.S = c.count, a.keys = at[i + 1] == S ? FIRST_KEYS : MORE_KEYS;
        if (c.count) sparse_forward(ops, &a, &got, c.kv, c.start, c.end, out);
        part_release(&c);
    }
    for (size_t i = 0; i < lses; i++)
        if (want.lse[i] == -INFINITY) {
            CHECK(got.lse[i] == -INFINITY);
            got.lse[i] = want.lse[i] = 0;
        }
    narrow(out, n, dtype, got.out);
    RIG_CLOSE(got.out, want.out, n, dtype);
    RIG_CLOSE_LSE(got.lse, want.lse, lses, dtype);
    memcpy(got.out, want.out, n * dtype_bytes(dtype));
    for (int i = 2; i >= 0; i--) {
        struct part c = part_make(&got, at[i], at[i + 1] - at[i]);
        size_t row = 2 * got.P, count = (size_t)c.count;
        float *here = rig_zeros((size_t)got.a.B * count * row + 1, F32);
        a.S = c.count, a.keys = at[i + 1] == S ? FIRST_KEYS : MORE_KEYS;
        if (c.count) sparse_backward(ops, &a, &got, c.kv, c.start, c.end, dq, here);
        for (size_t b = 0; b < (size_t)got.a.B; b++)
            memcpy(dkv + (b * (size_t)S + (size_t)c.first) * row, here + b * count * row,
                   count * row * sizeof *here);
        free(here), part_release(&c);
    }
    narrow(dq, n, dtype, dq_narrow), narrow(dkv, keys, dtype, dkv_narrow);
    for (size_t i = 0; i < queries_of(&want);
         i++) /* dq of whole rows has a stride, that of parts is dense */
        memmove((char *)want.dq + i * want.Q * dtype_bytes(dtype),
                (char *)want.dq + i * stride * dtype_bytes(dtype), want.Q * dtype_bytes(dtype));
    RIG_CLOSE(dq_narrow, (void *)want.dq, n, dtype);
    RIG_CLOSE(dkv_narrow, (void *)want.dkv, keys, dtype);
    free(out), free(dq), free(dkv), free(dq_narrow), free(dkv_narrow);
    sparse_release(&want), sparse_release(&got);
}

static void compare_all_parts(const struct ops *ops)
{
    static const int sizes[][2] = {{1, 1}, {5, 9}, {33, 70}, {70, 33}, {130, 37}, {37, 300}};
    for (size_t i = 0; i < (TEST_SLOWED ? 4 : sizeof sizes / sizeof *sizes); i++)
        for (int d = 0; d < DTYPE_COUNT; d++)
            compare_parts(ops, sizes[i][0], sizes[i][1], (enum dtype)d);
}

TEST(reference_attention_in_parts_matches_attention_to_all_keys)
{
    compare_all_parts(&ops_cpu_reference);
}

OPS_TEST(attention_in_parts_matches_attention_to_all_keys) { compare_all_parts(rig_fast()); }

OPS_TEST(attention_with_fewer_queries_than_keys_agrees_with_the_reference)
{
    static const struct {
        int T, S, window;
    } cases[] = {{45, 70, 0}, {45, 70, 20}, {1, 400, 170},
                 {3, 300, 9}, {1, 1300, 0}, {6, 1100, 900}};
    for (size_t i = 0; i < DTYPE_COUNT * sizeof cases / sizeof *cases; i++) {
        enum dtype dtype = (enum dtype)(i % DTYPE_COUNT);
        int T = cases[i / DTYPE_COUNT].T, S = cases[i / DTYPE_COUNT].S;
        if (TEST_SLOWED && S > 1000) continue;
        struct sparse plain = sparse_make(T, S, dtype), fast = sparse_make(T, S, dtype);
        size_t n = queries_of(&plain);
        plain.a.causal = fast.a.causal = true;
        plain.a.window = fast.a.window = cases[i / DTYPE_COUNT].window;
        sparse_forward(&ops_cpu_reference, &plain.a, &plain, plain.kv, NULL, NULL, plain.out);
        sparse_forward(rig_fast(), &fast.a, &fast, fast.kv, NULL, NULL, fast.out);
        RIG_CLOSE(fast.out, plain.out, n * plain.Q, dtype);
        sparse_backward(&ops_cpu_reference, &plain.a, &plain, plain.kv, NULL, NULL, plain.dq,
                        plain.dkv);
        sparse_backward(rig_fast(), &fast.a, &fast, fast.kv, NULL, NULL, fast.dq, fast.dkv);
        RIG_CLOSE((void *)fast.dq, (void *)plain.dq, n * plain.a.q_stride, dtype);
        RIG_CLOSE((void *)fast.dkv, (void *)plain.dkv, keys_of(&plain) * 2 * plain.P, dtype);
        sparse_release(&plain), sparse_release(&fast);
    }
}

OPS_TEST(query_without_visible_keys_gets_zero_and_nan_propagates)
{
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        struct sparse p = sparse_make(12, 10, F32);
        const float *out = p.out;
        ((float *)p.q)[0] = NAN;
        p.start[0] = 0, p.end[0] = 10, p.start[1] = p.end[1] = 3;
        sparse_forward(ops, &p.a, &p, p.kv, p.start, p.end, p.out);
        CHECK(isnan(p.lse[0]) && isnan(out[0]));
        CHECK(p.lse[1] == -INFINITY);
        for (size_t k = 0; k < p.Q; k++) CHECK(out[p.Q + k] == 0);
        p.a.keys = MORE_KEYS;
        p.start[0] = p.end[0] = 0;
        sparse_forward(ops, &p.a, &p, p.kv, p.start, p.end, p.out);
        CHECK(isnan(p.lse[0]) && isnan(out[0]));
        sparse_release(&p);
    }
}
