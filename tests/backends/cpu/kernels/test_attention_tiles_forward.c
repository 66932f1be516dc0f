// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/attention.h"

/* One bf16 head whose keys grow from token to token by the factor `growth`. */
struct head_with_growth {
    struct attention a;
    void *q, *k, *v, *out[2];
    float *lse[2];
};

static struct head_with_growth head_make(int T, int K, float growth, bool causal)
{
    size_t n = (size_t)T * (size_t)K;
    struct head_with_growth p = {
        .a = {1, T, T, 1, 1, K, (size_t)K, (size_t)K, 1, causal, BF16, .keys = ALL_KEYS}};
    p.q = rig_random(1, n, BF16), p.k = rig_random(2, n, BF16), p.v = rig_random(3, n, BF16);
    bf16 *k = p.k;
    for (size_t i = 0; i < n; i++)
        k[i] = bf16_from_f32(bf16_to_f32(k[i]) * powf(growth, (float)(i / (size_t)K)));
    for (int i = 0; i < 2; i++) p.out[i] = rig_zeros(n, BF16), p.lse[i] = rig_zeros((size_t)T, F32);
    return p;
}

static void head_release(struct head_with_growth *p)
{
    free(p->q), free(p->k), free(p->v);
    for (int i = 0; i < 2; i++) free(p->out[i]), free(p->lse[i]);
}

static void run_forward(struct head_with_growth *p, const struct ops *ops, int to)
{
    struct attention_fwd io = {p->q, p->k, p->v, NULL, NULL, p->out[to], p->lse[to]};
    RIG_RUN(attention_forward(ops, &p->a, &io, rig_queue()));
}

/* Scores reach several hundred: the largest of the first keys is negligible compared with the last
 * ones, or the other way round. */
OPS_TEST(online_softmax_handles_growing_and_shrinking_scores)
{
    static const float growths[] = {1.0f, 1.02f, 0.98f, 1.04f};
    for (size_t i = 0; i < sizeof growths / sizeof *growths; i++)
        for (int K = 8; K <= 72; K += 64) {
            struct head_with_growth p = head_make(150, K, growths[i], i & 1);
            size_t n = 150 * (size_t)K;
            run_forward(&p, &ops_cpu_reference, 0);
            run_forward(&p, rig_fast(), 1);
            RIG_CLOSE(p.out[1], p.out[0], n, BF16);
            RIG_CLOSE_LSE(p.lse[1], p.lse[0], 150, BF16);
            for (int t = 0; t < 150; t++) CHECK(fabsf(p.lse[1][t] - p.lse[0][t]) < 0.01f);
            head_release(&p);
        }
}

OPS_TEST(largest_score_is_exact_in_the_first_key_panel)
{
    struct head_with_growth p = head_make(70, 64, 0.7f, true);
    run_forward(&p, &ops_cpu_reference, 0);
    run_forward(&p, rig_fast(), 1);
    CHECK(fabsf(p.lse[1][0] - p.lse[0][0]) < 1e-4f);
    p.a.scale = 4; /* the first keys' scores dominate the others */
    run_forward(&p, &ops_cpu_reference, 0);
    run_forward(&p, rig_fast(), 1);
    for (int t = 32; t < 70; t++) CHECK(fabsf(p.lse[1][t] - p.lse[0][t]) < 0.01f);
    CHECK(fabsf(p.lse[1][0] - p.lse[0][0]) < 1e-4f);
    head_release(&p);
}

OPS_TEST(nan_key_propagates_to_the_queries_that_see_it)
{
    for (int sign = -1; sign < 2; sign += 2) {
        struct head_with_growth p = head_make(100, 40, 1, true);
        bf16 *k = p.k;
        k[70 * 40] = bf16_from_f32(copysignf(NAN, (float)sign));
        run_forward(&p, rig_fast(), 1);
        const bf16 *out = p.out[1];
        for (size_t t = 0; t < 100; t++) {
            CHECK(!isnan(p.lse[1][t]) == (t < 70));
            CHECK(!isnan(bf16_to_f32(out[t * 40 + 3])) == (t < 70));
        }
        head_release(&p);
    }
}

/* Values are one-hot, so that out shows the probs, rounded once more. */
OPS_TEST(probs_are_accurate_to_bf16)
{
    enum { T = 32, K = 32 };
    struct head_with_growth p = head_make(T, K, 1, false);
    bf16 *v = p.v, *out = p.out[1];
    const bf16 *q = p.q, *k = p.k;
    double mean = 0;
    p.a.scale = 0.3f;
    for (size_t i = 0; i < T * K; i++) v[i] = bf16_from_f32(i / K == i % K);
    run_forward(&p, rig_fast(), 1);
    for (size_t t = 0; t < T; t++) {
        double probs[T], sum = 0;
        for (size_t s = 0; s < T; s++) {
            double score = 0;
            for (size_t i = 0; i < K; i++)
                score += (double)bf16_to_f32(q[t * K + i]) * (double)bf16_to_f32(k[s * K + i]);
            sum += probs[s] = exp((double)p.a.scale * score);
        }
        for (size_t s = 0; s < T; s++) {
            double off = (double)bf16_to_f32(out[t * K + s]) * sum / probs[s] - 1;
            CHECK(fabs(off) < 0.0125);
            mean += off / (T * T);
        }
    }
    CHECK(fabs(mean) < 5e-4);
    head_release(&p);
}
