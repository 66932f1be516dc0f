// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/onednn.h"
#include "ops/rig.h"

/* Compares C = A B (+ D) in f32, with each operand plain or transposed, with three loops. */
static void check(int M, int N, int K, int how)
{
    struct gemm_shape s = {.M = M,
                           .N = N,
                           .K = K,
                           .transpose_a = how & 1,
                           .transpose_b = how & 2,
                           .accumulate = how & 4};
    size_t c_n = (size_t)M * (size_t)N;
    float *a = rig_random(1, (size_t)M * (size_t)K, F32);
    float *b = rig_random(2, (size_t)K * (size_t)N, F32), *c = rig_random(3, c_n, F32);
    float *want = rig_copy(c, c_n, F32), *old = rig_copy(c, c_n, F32);
    struct gemm_buffers io = {a, b, how & 8 ? old : c, c};
    if (how & 8) memset(c, 0xFF, c_n * sizeof *c);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float *sum = &want[i * N + j];
            if (!s.accumulate) *sum = 0;
            for (int k = 0; k < K; k++)
                *sum += a[s.transpose_a ? k * M + i : i * K + k] *
                        b[s.transpose_b ? j * K + k : k * N + j];
        }
    rig_set_sizing(true);
    CHECK_STATUS(OK, onednn_gemm(&s, &io, rig_queue()));
    rig_set_sizing(false);
    CHECK_STATUS(OK, onednn_gemm(&s, &io, rig_queue()));
    RIG_CLOSE(c, want, c_n, F32);
    free(a), free(b), free(c), free(want), free(old);
}

TEST(onednn_gemm_matches_three_loops_for_all_transposes)
{
    for (int how = 0; how < 16; how++) check(1, 1, 1, how), check(33, 17, 65, how);
}

TEST(onednn_reports_its_version)
{
    struct text version = {0};
    int major = 0, minor = 0;
    onednn_version(&version);
    CHECK(sscanf(version.data, "%d.%d.", &major, &minor) == 2 && major >= 2);
    text_release(&version);
}
