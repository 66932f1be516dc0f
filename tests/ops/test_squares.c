// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/update.h"

enum { SIZE = 10007 };

OPS_TEST(sum_squares_has_the_same_bits_on_any_number_of_threads)
{
    float *x = rig_random(1, SIZE, F32);
    double want = 0, got[2];
    for (int i = 0; i < SIZE; i++) want += (double)x[i] * (double)x[i];
    struct sum_squares s = {.n = SIZE};
    for (int threads = 1; threads <= 2; threads++) {
        rig_queue()->num_threads = threads;
        struct sum_squares_io io = {x, &got[threads - 1]};
        RIG_RUN(sum_squares(rig_fast(), &s, &io, rig_queue()));
    }
    CHECK(got[0] == got[1]);
    CHECK_NEAR(got[0], want, 1e-12);
    free(x);
}

OPS_TEST(sum_squares_takes_any_length_and_alignment)
{
    static const size_t lengths[] = {0, 1, 2, 4095, 4096, 16384, 16385, 49157};
    float *x = rig_random(1, 49160, F32);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t at = 0; at < 2; at++) {
            double want = 0, got = -1;
            for (size_t k = 0; k < lengths[i]; k++) want += (double)x[at + k] * (double)x[at + k];
            struct sum_squares s = {.n = lengths[i]};
            struct sum_squares_io io = {x + at, &got};
            RIG_RUN(sum_squares(rig_fast(), &s, &io, rig_queue()));
            CHECK_NEAR(got, want, 1e-12);
        }
    free(x);
}

OPS_TEST(sums_of_squares_of_one_call_have_the_bits_of_a_call_for_each)
{
    enum { SUMS = 3 };
    static const size_t lengths[] = {0, 1, 4095, 4096, 16388, 20001};
    for (size_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        enum dtype dtype = i % 2 ? BF16 : F32;
        size_t n = lengths[i / 2];
        unsigned char *x = rig_random(1, SUMS * n + 1, dtype);
        double all[SUMS] = {-1, -1, -1}, one[SUMS];
        struct sum_squares s = {.n = n, .dtype = dtype, .sums = SUMS};
        RIG_RUN(sum_squares(rig_fast(), &s, &(struct sum_squares_io){x, all}, rig_queue()));
        s.sums = 0;
        for (size_t k = 0; k < SUMS; k++) {
            struct sum_squares_io io = {x + k * n * dtype_bytes(dtype), &one[k]};
            RIG_RUN(sum_squares(rig_fast(), &s, &io, rig_queue()));
        }
        CHECK(!memcmp(all, one, sizeof all) && (!n || all[2] > 0));
        free(x);
    }
}

OPS_TEST(divide_by_norm_never_divides_by_less_than_the_least)
{
    for (int k = 0; k < 8; k++) {
        enum dtype to = k & 1 ? BF16 : F32;
        size_t n = k & 2 ? SIZE : 40009;
        double scale = k & 4 ? 1e-12 : 1, squares = 0;
        float *x = rig_random(1, n, F32), *want = rig_zeros(n, F32), *wide = rig_zeros(n, F32);
        void *y = to == F32 ? x : rig_zeros(n, to);
        for (size_t i = 0; i < n; i++) x[i] *= (float)scale;
        for (size_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
        for (size_t i = 0; i < n; i++) want[i] = x[i] / (float)fmax(sqrt(squares), 1e-7);
        struct divide_by_norm a = {.n = n, .to = to, .min_norm = 1e-7};
        RIG_RUN(divide_by_norm(rig_fast(), &a, &(struct divide_by_norm_io){x, y}, rig_queue()));
        for (size_t i = 0; i < n; i++)
            wide[i] = to == F32 ? ((float *)y)[i] : bf16_to_f32(((bf16 *)y)[i]);
        rig_check_close("divide_by_norm", wide, want, n, F32, to == F32 ? 1e-6 : 3e-3);
        if (to == BF16) free(y);
        free(x), free(want), free(wide);
    }
}
