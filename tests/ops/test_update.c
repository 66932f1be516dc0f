// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/update.h"

enum { SIZE = 10007 };

OPS_TEST(sum_squares_is_the_sum_on_any_number_of_threads)
{
    float *x = rig_random(1, SIZE, F32);
    double want = 0, got[2];
    for (int i = 0; i < SIZE; i++) want += (double)x[i] * (double)x[i];
    struct sum_squares s = {SIZE};
    for (int threads = 1; threads <= 2; threads++) {
        rig_queue()->num_threads = threads;
        struct sum_squares_io io = {x, &got[threads - 1]};
        RIG_RUN(sum_squares(rig_fast(), &s, &io, rig_queue()));
    }
    CHECK(got[0] == got[1]);
    CHECK_NEAR(got[0], want, 1e-12);
    free(x);
}

/* torch.optim.AdamW in f64. */
static void adamw_in_double(double *w, double *m, double *v, double g, double lr, int step)
{
    *w *= 1 - lr * 0.1;
    *m = 0.9 * *m + 0.1 * g;
    *v = 0.95 * *v + 0.05 * g * g;
    *w -= lr / (1 - pow(0.9, step)) * *m / (sqrt(*v) / sqrt(1 - pow(0.95, step)) + 1e-8);
}

OPS_TEST(adamw_follows_the_formula_and_writes_the_copy)
{
    for (int table = 0; table < 2; table++) {
        float *w = rig_random(1, SIZE, F32), *m = rig_zeros(SIZE, F32), *v = rig_zeros(SIZE, F32);
        bf16 *copy = rig_zeros(SIZE, BF16);
        double dw[64], dm[64] = {0}, dv[64] = {0};
        for (int i = 0; i < 64; i++) dw[i] = (double)w[i];
        for (int step = 1; step <= 5; step++) {
            float *g = rig_random((uint64_t)step + 1, SIZE, F32);
            struct adamw a = {SIZE, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, step, BF16};
            struct adamw_io io = {w, m, v, g, copy};
            RIG_RUN(adamw(table ? rig_fast() : &ops_cpu_reference, &a, &io, rig_queue()));
            for (int i = 0; i < 64; i++)
                adamw_in_double(&dw[i], &dm[i], &dv[i], 0.5 * (double)g[i], 1e-2, step);
            free(g);
        }
        for (int i = 0; i < 64; i++) {
            CHECK_NEAR((double)w[i], dw[i], 1e-6);
            CHECK_NEAR((double)m[i], dm[i], 1e-6);
            CHECK(copy[i] == bf16_from_f32(w[i]));
        }
        free(w), free(m), free(v), free(copy);
    }
}

TEST(adamw_refuses_step_zero)
{
    struct adamw a = {.n = 1};
    CHECK_STATUS(SHAPE, adamw(&ops_cpu_reference, &a, NULL, rig_queue()));
}

OPS_TEST(sums_of_squares_of_any_length_begin_anywhere)
{
    static const size_t lengths[] = {0, 1, 2, 4095, 4096, 16384, 16385, 49157};
    float *x = rig_random(1, 49160, F32);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t at = 0; at < 2; at++) {
            double want = 0, got = -1;
            for (size_t k = 0; k < lengths[i]; k++) want += (double)x[at + k] * (double)x[at + k];
            struct sum_squares s = {lengths[i]};
            struct sum_squares_io io = {x + at, &got};
            RIG_RUN(sum_squares(rig_fast(), &s, &io, rig_queue()));
            CHECK_NEAR(got, want, 1e-12);
        }
    free(x);
}

OPS_TEST(adamw_of_any_range_agrees_with_the_reference)
{
    static const size_t lengths[] = {0, 1, 7, 8, 1003};
    enum { ALL = 1010 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int kind = 0; kind < 6; kind++) { /* ranges that begin anywhere; kinds of copies */
            size_t n = lengths[i], at = (size_t)kind % 2;
            enum dtype dtype = kind / 2 == 1 ? BF16 : F32;
            float *w[2], *m[2], *v[2], *g = rig_random(4, ALL, F32);
            void *copy[2];
            for (int table = 0; table < 2; table++) {
                w[table] = rig_random(1, ALL, F32), m[table] = rig_random(2, ALL, F32);
                v[table] = rig_zeros(ALL, F32), copy[table] = rig_zeros(ALL, dtype);
                struct adamw a = {n, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3, dtype};
                struct adamw_io io = {w[table] + at, m[table] + at, v[table] + at, g + at, NULL};
                if (kind / 2) io.copy_n = (char *)copy[table] + at * dtype_bytes(dtype);
                const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
                RIG_RUN(adamw(ops, &a, &io, rig_queue()));
            }
            rig_check_close("w", w[1], w[0], ALL, F32, 1e-6);
            rig_check_close("m", m[1], m[0], ALL, F32, 1e-6);
            rig_check_close("v", v[1], v[0], ALL, F32, 1e-6);
            RIG_CLOSE(copy[1], copy[0], ALL, dtype);
            for (int table = 0; table < 2; table++)
                free(w[table]), free(m[table]), free(v[table]), free(copy[table]);
            free(g);
        }
}
