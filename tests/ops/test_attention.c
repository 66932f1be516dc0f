// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/attention.h"

/* q, k, v in one fused row, as the model has them; documents of `document` tokens, 0: none. */
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
    p.a = (struct attention){B,      T,     T,       H, G, K, p.C, p.C, 1 / sqrtf((float)K),
                             causal, dtype, ALL_KEYS};
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

static void compare(int B, int T, int H, int G, int K, bool causal, int document, enum dtype dtype)
{
    struct problem plain = problem_make(B, T, H, G, K, causal, document, dtype);
    struct problem fast = problem_make(B, T, H, G, K, causal, document, dtype);
    size_t rows = (size_t)B * (size_t)T, Q = (size_t)H * (size_t)K;
    run_forward(&ops_cpu_reference, &plain);
    run_forward(rig_fast(), &fast);
    RIG_CLOSE(fast.out, plain.out, rows * Q, dtype);
    RIG_CLOSE(fast.lse, plain.lse, rows * (size_t)H, F32);
    memcpy(fast.out, plain.out, rows * Q * dtype_bytes(dtype));
    run_backward(&ops_cpu_reference, &plain);
    run_backward(rig_fast(), &fast);
    RIG_CLOSE(fast.dqkv, plain.dqkv, rows * plain.C, dtype);
    problem_release(&plain), problem_release(&fast);
}

OPS_TEST(attention_agrees_with_the_reference_under_every_mask)
{
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int causal = 0; causal < 2; causal++) {
            compare(1, 1, 1, 1, 1, causal, 0, (enum dtype)d);
            compare(2, 7, 4, 2, 6, causal, 0, (enum dtype)d);
            compare(1, 65, 3, 1, 16, causal, 0, (enum dtype)d);
            compare(2, 70, 2, 2, 20, causal, 9, (enum dtype)d);
            compare(1, 130, 2, 1, 32, causal, 50, (enum dtype)d);
            compare(1, 300, 2, 1, 40, causal, 0, (enum dtype)d);
            compare(1, 300, 1, 1, 64, causal, 140, (enum dtype)d);
        }
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

OPS_TEST(attention_of_the_last_queries_is_the_end_of_attention_of_all)
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

TEST(attention_gradients_are_the_differences)
{
    for (int variant = 0; variant < 4; variant++) {
        struct problem p = problem_make(1, 6, 4, 2, 4, variant & 1, variant & 2 ? 4 : 0, F32);
        loss(&p);
        run_backward(&ops_cpu_reference, &p);
        rig_check_gradient("qkv", p.qkv, 6 * p.C, p.dqkv, loss, &p);
        problem_release(&p);
    }
}

TEST(attention_refuses_what_does_not_divide_or_fit)
{
    const struct attention fine = {1, 2, 2, 2, 2, 8, 16, 16, 1, true, F32, ALL_KEYS};
    struct attention heads = fine, keys = fine, none = fine, stride = fine;
    heads.H = 4, heads.G = 3, heads.q_stride = 32, heads.kv_stride = 24;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &heads, NULL, rig_queue()));
    CHECK_MESSAGE("4 query heads over 3");
    keys.T = 3;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &keys, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, attention_backward(&ops_cpu_reference, &keys, NULL, rig_queue()));
    none.S = 0, none.causal = false;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &none, NULL, rig_queue()));
    stride.q_stride = 15;
    CHECK_STATUS(SHAPE, attention_forward(&ops_cpu_reference, &stride, NULL, rig_queue()));
}
