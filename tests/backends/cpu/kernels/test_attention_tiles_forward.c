// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/attention.h"

/* One head of bf16, whose keys grow in size from token to token by the factor `growth`. */
struct growing {
    struct attention a;
    void *q, *k, *v, *out[2];
    float *lse[2];
};

static struct growing growing_make(int T, int K, float growth, bool causal)
{
    size_t n = (size_t)T * (size_t)K;
    struct growing p = {
        .a = {1, T, T, 1, 1, K, (size_t)K, (size_t)K, 1, causal, BF16, .keys = ALL_KEYS}};
    p.q = rig_random(1, n, BF16), p.k = rig_random(2, n, BF16), p.v = rig_random(3, n, BF16);
    bf16 *k = p.k;
    for (size_t i = 0; i < n; i++)
        k[i] = bf16_from_f32(bf16_to_f32(k[i]) * powf(growth, (float)(i / (size_t)K)));
    for (int i = 0; i < 2; i++) p.out[i] = rig_zeros(n, BF16), p.lse[i] = rig_zeros((size_t)T, F32);
    return p;
}

static void growing_release(struct growing *p)
{
    free(p->q), free(p->k), free(p->v);
    for (int i = 0; i < 2; i++) free(p->out[i]), free(p->lse[i]);
}

static void run(struct growing *p, const struct ops *ops, int to)
{
    struct attention_fwd io = {p->q, p->k, p->v, NULL, NULL, p->out[to], p->lse[to]};
    RIG_RUN(attention_forward(ops, &p->a, &io, rig_queue()));
}

/* Scores reach some hundreds: what seemed large among the first keys is nothing beside the last, or
 * the other way round. */
OPS_TEST(queries_find_keys_that_outgrow_all_before_them)
{
    static const float growths[] = {1.0f, 1.02f, 0.98f, 1.04f};
    for (size_t i = 0; i < sizeof growths / sizeof *growths; i++)
        for (int K = 8; K <= 72; K += 64) {
            struct growing p = growing_make(150, K, growths[i], i & 1);
            size_t n = 150 * (size_t)K;
            run(&p, &ops_cpu_reference, 0);
            run(&p, rig_fast(), 1);
            RIG_CLOSE(p.out[1], p.out[0], n, BF16);
            RIG_CLOSE_LSE(p.lse[1], p.lse[0], 150, BF16);
            for (int t = 0; t < 150; t++) CHECK(fabsf(p.lse[1][t] - p.lse[0][t]) < 0.01f);
            growing_release(&p);
        }
}

OPS_TEST(odds_of_the_largest_score_are_exact_where_it_comes_first)
{
    struct growing p = growing_make(70, 64, 0.7f, true);
    run(&p, &ops_cpu_reference, 0);
    run(&p, rig_fast(), 1);
    CHECK(fabsf(p.lse[1][0] - p.lse[0][0]) < 1e-4f);
    p.a.scale = 4; /* the first keys' scores stand far above the others */
    run(&p, &ops_cpu_reference, 0);
    run(&p, rig_fast(), 1);
    for (int t = 32; t < 70; t++) CHECK(fabsf(p.lse[1][t] - p.lse[0][t]) < 0.01f);
    CHECK(fabsf(p.lse[1][0] - p.lse[0][0]) < 1e-4f);
    growing_release(&p);
}

OPS_TEST(what_is_not_a_number_among_keys_reaches_the_queries_that_see_it)
{
    for (int sign = -1; sign < 2; sign += 2) {
        struct growing p = growing_make(100, 40, 1, true);
        bf16 *k = p.k;
        k[70 * 40] = bf16_from_f32(copysignf(NAN, (float)sign));
        run(&p, rig_fast(), 1);
        const bf16 *out = p.out[1];
        for (size_t t = 0; t < 100; t++) {
            CHECK(!isnan(p.lse[1][t]) == (t < 70));
            CHECK(!isnan(bf16_to_f32(out[t * 40 + 3])) == (t < 70));
        }
        growing_release(&p);
    }
}

/* Each key's value is a place of its own, so out shows the odds, to one more rounding. */
OPS_TEST(odds_are_about_as_exact_as_bf16)
{
    enum { T = 32, K = 32 };
    struct growing p = growing_make(T, K, 1, false);
    bf16 *v = p.v, *out = p.out[1];
    const bf16 *q = p.q, *k = p.k;
    double mean = 0;
    p.a.scale = 0.3f;
    for (size_t i = 0; i < T * K; i++) v[i] = bf16_from_f32(i / K == i % K);
    run(&p, rig_fast(), 1);
    for (size_t t = 0; t < T; t++) {
        double odds[T], sum = 0;
        for (size_t s = 0; s < T; s++) {
            double score = 0;
            for (size_t i = 0; i < K; i++)
                score += (double)bf16_to_f32(q[t * K + i]) * (double)bf16_to_f32(k[s * K + i]);
            sum += odds[s] = exp((double)p.a.scale * score);
        }
        for (size_t s = 0; s < T; s++) {
            double off = (double)bf16_to_f32(out[t * K + s]) * sum / odds[s] - 1;
            CHECK(fabs(off) < 0.0125);
            mean += off / (T * T);
        }
    }
    CHECK(fabs(mean) < 5e-4);
    growing_release(&p);
}
