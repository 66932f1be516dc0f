// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "backends/cpu/kernels/attention_decode.h"

/* The last T of S tokens as queries: few queries take another code path than many, and both must
 * agree. */
static void check(int T, int S, bool causal, enum dtype dtype)
{
    enum { B = 2, H = 6, G = 2, K = 20, MANY = DECODE_MAX_QUERIES + 3 };
    size_t Q = H * K, P = G * K, rows = (size_t)(B * S);
    struct attention few = {B, T, S, H, G, K, Q, P, 0.3f, causal, dtype, .keys = ALL_KEYS},
                     many = few;
    many.T = MANY;
    void *k = rig_random(1, rows * P, dtype), *v = rig_random(2, rows * P, dtype);
    void *q = rig_random(3, B * MANY * Q, dtype),
         *out[2] = {rig_zeros(B * MANY * Q, dtype), rig_zeros(B * MANY * Q, dtype)};
    void *last = rig_zeros(B * MANY * Q, dtype), *want = rig_zeros(B * MANY * Q, dtype);
    float lse[2][B * H * MANY];
    size_t bytes = (size_t)T * Q * dtype_bytes(dtype), all = MANY * Q * dtype_bytes(dtype);
    for (size_t b = 0; b < B; b++)
        memcpy((char *)last + b * bytes, (char *)q + (b + 1) * all - bytes, bytes);
    struct attention_fwd io = {.q_BTHK = last, .k_BSGK = k, .v_BSGK = v, .out_BTHK = out[0]};
    io.lse_BHT = lse[0];
    RIG_RUN(attention_forward(rig_fast(), &few, &io, rig_queue()));
    io.q_BTHK = q, io.out_BTHK = out[1], io.lse_BHT = lse[1];
    RIG_RUN(attention_forward(rig_fast(), &many, &io, rig_queue()));
    for (size_t b = 0; b < B; b++)
        memcpy((char *)want + b * bytes, (char *)out[1] + (b + 1) * all - bytes, bytes);
    RIG_CLOSE(out[0], want, B * (size_t)T * Q, dtype);
    for (int n = 0; n < B * H; n++)
        for (int t = 0; t < T; t++)
            CHECK_NEAR((double)lse[0][n * T + t], (double)lse[1][n * MANY + MANY - T + t], 1e-3);
    free(k), free(v), free(q), free(out[0]), free(out[1]), free(last), free(want);
}

OPS_TEST(decode_kernel_matches_the_general_kernel)
{
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int causal = 0; causal < 2; causal++) {
            check(1, DECODE_MAX_QUERIES + 3, causal, (enum dtype)d);
            check(1, 90, causal, (enum dtype)d);
            check(DECODE_MAX_QUERIES, 33, causal, (enum dtype)d);
        }
}
