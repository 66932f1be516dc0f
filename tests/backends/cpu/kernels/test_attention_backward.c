// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/attention.h"

/* One head with q, k, v as separate tensors. */
static void check(int T, int K, enum dtype dtype)
{
    size_t n = (size_t)T * (size_t)K;
    struct attention a = {1,         T,         T,      1,    1,     K,
                          (size_t)K, (size_t)K, 0.125f, true, dtype, .keys = ALL_KEYS};
    void *x[4], *out = rig_zeros(n, dtype), *d[2][3];
    float *lse = rig_zeros((size_t)T, F32);
    for (size_t i = 0; i < 4; i++) x[i] = rig_random(i, n, dtype);
    struct attention_fwd forward = {x[0], x[1], x[2], NULL, NULL, out, lse};
    RIG_RUN(attention_forward(&ops_cpu_reference, &a, &forward, rig_queue()));
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 3; j++) d[i][j] = rig_zeros(n, dtype);
        struct attention_bwd io = {x[0], x[1], x[2],    out,     x[3],   NULL,
                                   NULL, lse,  d[i][0], d[i][1], d[i][2]};
        RIG_RUN(attention_backward(i ? rig_fast() : &ops_cpu_reference, &a, &io, rig_queue()));
    }
    for (int j = 0; j < 3; j++) RIG_CLOSE(d[1][j], d[0][j], n, dtype);
    for (int j = 0; j < 3; j++) free(d[0][j]), free(d[1][j]);
    for (int i = 0; i < 4; i++) free(x[i]);
    free(out), free(lse);
}

OPS_TEST(gradients_of_long_rows_and_wide_heads_match_the_reference)
{
    check(140, 64, BF16);
    check(70, 128, BF16);
    check(36, 256, BF16);
    check(33, 136, F32);
}
