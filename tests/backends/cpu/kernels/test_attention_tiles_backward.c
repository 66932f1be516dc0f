// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/attention.h"

enum { T = 140, S = 400, K = 72, H = 2 };

/* Adjacent query panels see distant keys: key panels in between are seen by none, or lie within a
 * panel's range without being visible. */
static void bounds(int how, int32_t *start, int32_t *end)
{
    for (int t = 0; t < T; t++) {
        int panel = t / 32, far = how ? (4 - panel) * 90 : panel * 90;
        start[t] = far, end[t] = far + (how == 2 ? 40 - t % 32 : 30 + t % 7);
        if (end[t] > S) end[t] = S;
    }
}

static void backward(const struct ops *ops, const struct attention *a,
                     const struct attention_bwd *io)
{
    RIG_RUN(attention_backward(ops, a, io, rig_queue()));
}

OPS_TEST(gradients_match_where_key_panels_are_skipped)
{
    size_t Q = H * K, q = T * Q, kv = S * K;
    struct attention a = {1, T, S, H, 1, K, Q, K, 0.1f, false, BF16, .keys = ALL_KEYS};
    void *x = rig_random(1, q, BF16), *k = rig_random(2, kv, BF16), *v = rig_random(3, kv, BF16);
    void *dout = rig_random(4, q, BF16), *out = rig_zeros(q, BF16), *d[2][3];
    float lse[H * T];
    int32_t start[T], end[T];
    for (int i = 0; i < 2; i++)
        d[i][0] = rig_zeros(q, BF16), d[i][1] = rig_zeros(kv, BF16), d[i][2] = rig_zeros(kv, BF16);
    for (int how = 0; how < 3; how++) {
        bounds(how, start, end);
        struct attention_fwd forward = {x, k, v, start, end, out, lse};
        RIG_RUN(attention_forward(&ops_cpu_reference, &a, &forward, rig_queue()));
        for (int i = 0; i < 2; i++) {
            struct attention_bwd io = {x,   k,   v,       out,     dout,   start,
                                       end, lse, d[i][0], d[i][1], d[i][2]};
            backward(i ? rig_fast() : &ops_cpu_reference, &a, &io);
        }
        RIG_CLOSE(d[1][0], d[0][0], q, BF16);
        RIG_CLOSE(d[1][1], d[0][1], kv, BF16);
        RIG_CLOSE(d[1][2], d[0][2], kv, BF16);
    }
    for (int i = 0; i < 2; i++) free(d[i][0]), free(d[i][1]), free(d[i][2]);
    free(x), free(k), free(v), free(dout), free(out);
}
