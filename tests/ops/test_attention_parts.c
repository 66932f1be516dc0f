/* test_attention_parts.c -- attention to keys that come in parts, and to any keys at all. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "base/rng.h"
#include "ops/attention.h"

/* Queries with bounds of their own: some see nothing.  Keys and values side by side. */
struct problem {
    struct attention a;
    size_t Q, P;
    void *q, *kv, *dout, *out;
    float *lse, *dq, *dkv;
    int32_t *start, *end;
};

static size_t queries_of(const struct problem *p) { return (size_t)p->a.B * (size_t)p->a.T; }
static size_t keys_of(const struct problem *p) { return (size_t)p->a.B * (size_t)p->a.S; }

static struct problem problem_make(int T, int S, enum dtype dtype)
{
    enum { B = 2, H = 4, G = 2, K = 20 };
    struct problem p = {.Q = H * K, .P = G * K};
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

static void problem_release(struct problem *p)
{
    free(p->q), free(p->kv), free(p->dout), free(p->out), free(p->lse), free(p->dq), free(p->dkv);
    free(p->start), free(p->end);
}

static void *values(const struct problem *p, const void *kv, enum dtype dtype)
{
    return (char *)(uintptr_t)kv + p->P * dtype_bytes(dtype);
}

static void forward(const struct ops *ops, const struct attention *a, struct problem *p,
                    const void *kv, const int32_t *start, const int32_t *end, void *out)
{
    struct attention_fwd io = {p->q, kv, values(p, kv, a->dtype), start, end, out, p->lse};
    RIG_RUN(attention_forward(ops, a, &io, rig_queue()));
}

static void backward(const struct ops *ops, const struct attention *a, struct problem *p,
                     const void *kv, const int32_t *start, const int32_t *end, void *dq, void *dkv)
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

/* Keys [first, first + count) of every row, and each query's bounds among them. */
struct part {
    int first, count;
    void *kv;
    int32_t *start, *end;
};

static int clamp(int x, int most) { return x < 0 ? 0 : x > most ? most : x; }

static struct part part_make(const struct problem *p, int first, int count)
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

/* f32, as the dtype would have it, to `to`. */
static void narrow(const float *x, size_t n, enum dtype dtype, void *to)
{
    for (size_t i = 0; i < n; i++)
        if (dtype == F32)
            ((float *)to)[i] = x[i];
        else
            ((bf16 *)to)[i] = bf16_from_f32(x[i]);
}

/* All at once by the reference, then in up to three parts, of which the last comes first. */
static void compare(const struct ops *ops, int T, int S, enum dtype dtype)
{
    struct problem want = problem_make(T, S, dtype), got = problem_make(T, S, dtype);
    size_t n = queries_of(&want) * want.Q, lses = queries_of(&want) * (size_t)want.a.H;
    size_t stride = want.a.q_stride, keys = keys_of(&want) * 2 * want.P;
    float *out = rig_zeros(n, F32), *dq = rig_zeros(n, F32), *dkv = rig_zeros(keys, F32);
    void *dq_narrow = rig_zeros(n, dtype), *dkv_narrow = rig_zeros(keys, dtype);
    int at[] = {0, S / 4, S / 4 + 2, S};
    if (at[2] > S) at[2] = at[1];
    struct attention a = got.a;
    forward(&ops_cpu_reference, &want.a, &want, want.kv, want.start, want.end, want.out);
    backward(&ops_cpu_reference, &want.a, &want, want.kv, want.start, want.end, want.dq, want.dkv);
    for (int i = 2; i >= 0; i--) {
        struct part c = part_make(&got, at[i], at[i + 1] - at[i]);
        a.S = c.count, a.keys = at[i + 1] == S ? FIRST_KEYS : MORE_KEYS;
        if (c.count) forward(ops, &a, &got, c.kv, c.start, c.end, out);
        part_release(&c);
    }
    for (size_t i = 0; i < lses; i++)
        if (want.lse[i] == -INFINITY) {
            CHECK(got.lse[i] == -INFINITY);
            got.lse[i] = want.lse[i] = 0;
        }
    narrow(out, n, dtype, got.out);
    RIG_CLOSE(got.out, want.out, n, dtype);
    RIG_CLOSE(got.lse, want.lse, lses, F32);
    memcpy(got.out, want.out, n * dtype_bytes(dtype));
    for (int i = 2; i >= 0; i--) {
        struct part c = part_make(&got, at[i], at[i + 1] - at[i]);
        size_t row = 2 * got.P, count = (size_t)c.count;
        float *here = rig_zeros((size_t)got.a.B * count * row + 1, F32);
        a.S = c.count, a.keys = at[i + 1] == S ? FIRST_KEYS : MORE_KEYS;
        if (c.count) backward(ops, &a, &got, c.kv, c.start, c.end, dq, here);
        for (size_t b = 0; b < (size_t)got.a.B; b++)
            memcpy(dkv + (b * (size_t)S + (size_t)c.first) * row, here + b * count * row,
                   count * row * sizeof *here);
        free(here), part_release(&c);
    }
    narrow(dq, n, dtype, dq_narrow), narrow(dkv, keys, dtype, dkv_narrow);
    for (size_t i = 0; i < queries_of(&want); i++) /* whole rows have a stride, parts have none */
        memmove((char *)want.dq + i * want.Q * dtype_bytes(dtype),
                (char *)want.dq + i * stride * dtype_bytes(dtype), want.Q * dtype_bytes(dtype));
    RIG_CLOSE(dq_narrow, (void *)want.dq, n, dtype);
    RIG_CLOSE(dkv_narrow, (void *)want.dkv, keys, dtype);
    free(out), free(dq), free(dkv), free(dq_narrow), free(dkv_narrow);
    problem_release(&want), problem_release(&got);
}

OPS_TEST(attention_in_parts_is_attention_to_all_keys)
{
    static const int sizes[][2] = {{1, 1}, {5, 9}, {33, 70}, {70, 33}, {130, 37}, {37, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = 0; d < DTYPE_COUNT; d++) {
            compare(&ops_cpu_reference, sizes[i][0], sizes[i][1], (enum dtype)d);
            compare(rig_fast(), sizes[i][0], sizes[i][1], (enum dtype)d);
        }
}

OPS_TEST(attention_of_other_than_as_many_queries_agrees_with_the_reference)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype dtype = (enum dtype)d;
        struct problem plain = problem_make(45, 70, dtype), fast = problem_make(45, 70, dtype);
        size_t n = queries_of(&plain);
        plain.a.causal = fast.a.causal = true;
        forward(&ops_cpu_reference, &plain.a, &plain, plain.kv, NULL, NULL, plain.out);
        forward(rig_fast(), &fast.a, &fast, fast.kv, NULL, NULL, fast.out);
        RIG_CLOSE(fast.out, plain.out, n * plain.Q, dtype);
        backward(&ops_cpu_reference, &plain.a, &plain, plain.kv, NULL, NULL, plain.dq, plain.dkv);
        backward(rig_fast(), &fast.a, &fast, fast.kv, NULL, NULL, fast.dq, fast.dkv);
        RIG_CLOSE((void *)fast.dq, (void *)plain.dq, n * plain.a.q_stride, dtype);
        RIG_CLOSE((void *)fast.dkv, (void *)plain.dkv, keys_of(&plain) * 2 * plain.P, dtype);
        problem_release(&plain), problem_release(&fast);
    }
}

OPS_TEST(a_query_that_sees_no_key_gets_nothing_and_one_that_is_not_a_number_stays_so)
{
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        struct problem p = problem_make(12, 10, F32);
        const float *out = p.out;
        ((float *)p.q)[0] = NAN;
        p.start[0] = 0, p.end[0] = 10, p.start[1] = p.end[1] = 3;
        forward(ops, &p.a, &p, p.kv, p.start, p.end, p.out);
        CHECK(isnan(p.lse[0]) && isnan(out[0]));
        CHECK(p.lse[1] == -INFINITY);
        for (size_t k = 0; k < p.Q; k++) CHECK(out[p.Q + k] == 0);
        p.a.keys = MORE_KEYS;
        p.start[0] = p.end[0] = 0;
        forward(ops, &p.a, &p, p.kv, p.start, p.end, p.out);
        CHECK(isnan(p.lse[0]) && isnan(out[0]));
        problem_release(&p);
    }
}
