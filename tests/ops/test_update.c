// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/update.h"

enum { SIZE = 10007 };

static struct adamw usual(size_t n, int64_t step)
{
    return (struct adamw){.n = n,
                          .lr = 1e-2,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .scale = 0.5,
                          .step = step};
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
            struct adamw a = usual(SIZE, step);
            a.copy_dtype = BF16;
            struct adamw_io io = {w, m, v, g, copy, NULL};
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

/* Parts of every kind of alignment, with gaps that must not change, as one call and as a call for
 * each part. */
static void check_parts(enum dtype moments, bool split)
{
    enum { ALL = 20000, PARTS = 40 };
    struct adamw_part parts[PARTS];
    struct adamw a = usual(0, 3);
    float *w[2];
    bf16 *copy[2], *low[2];
    void *m[2], *v[2];
    float *g = rig_random(4, ALL, F32), *squares = rig_random(3, ALL, F32);
    for (int i = 0; i < ALL; i++) squares[i] *= squares[i];
    size_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        size_t count = i == 7 ? 9000 : i % 5 ? 8 * ((size_t)i + 1) : 3 * (size_t)i + 1;
        parts[i] = (struct adamw_part){.begin = at,
                                       .count = count,
                                       .lr = i % 3 ? 1e-2 : 3e-3,
                                       .weight_decay = 0.01 * (i % 20),
                                       .position = 1000 * (uint64_t)i + 5,
                                       .run = i % 4 ? 0 : 13,
                                       .stride = i % 4 ? 0 : 40};
        at += count + (size_t)(i % 3) * 8, a.n += count;
    }
    CHECK(at < ALL);
    a.moments = moments, a.split = split, a.copy_dtype = BF16, a.seed = 11;
    for (int k = 0; k < 2; k++) {
        w[k] = rig_random(1, ALL, F32), m[k] = rig_random(2, ALL, moments);
        v[k] = rig_zeros(ALL, moments), copy[k] = rig_random(5, ALL, BF16);
        low[k] = rig_random(6, ALL, BF16);
        for (int i = 0; i < ALL; i++)
            if (moments == F32)
                ((float *)v[k])[i] = squares[i];
            else
                ((bf16 *)v[k])[i] = bf16_from_f32(squares[i]);
        struct adamw_io io = {split ? NULL : w[k], m[k], v[k], g, copy[k], (uint16_t *)low[k]};
        if (!split) io.low_n = NULL;
        a.parts = parts, a.num_parts = PARTS;
        struct ops one_by_one = *rig_fast();
        one_by_one.is_multi_tensor = false;
        RIG_RUN(adamw(k ? rig_fast() : &one_by_one, &a, &io, rig_queue()));
    }
    CHECK(!memcmp(w[0], w[1], ALL * sizeof(float)) && !memcmp(low[0], low[1], ALL * sizeof(bf16)));
    CHECK(!memcmp(copy[0], copy[1], ALL * sizeof(bf16)));
    CHECK(!memcmp(m[0], m[1], ALL * dtype_bytes(moments)));
    CHECK(!memcmp(v[0], v[1], ALL * dtype_bytes(moments)));
    for (int k = 0; k < 2; k++) free(w[k]), free(m[k]), free(v[k]), free(copy[k]), free(low[k]);
    free(g), free(squares);
}

OPS_TEST(adamw_of_many_parts_has_the_bits_of_a_call_for_each)
{
    check_parts(F32, false);
    check_parts(BF16, false);
    check_parts(F32, true);
    check_parts(BF16, true);
}

TEST(adamw_rejects_too_many_parts)
{
    struct adamw_part parts[1] = {{0}};
    struct adamw a = {.step = 1, .parts = parts, .num_parts = ADAMW_MAX_PARTS + 1};
    CHECK_STATUS(SHAPE, adamw(&ops_cpu_reference, &a, NULL, rig_queue()));
}

TEST(adamw_rejects_step_zero_and_split_weights_with_a_float32_copy)
{
    struct adamw a = {.n = 1};
    CHECK_STATUS(SHAPE, adamw(&ops_cpu_reference, &a, NULL, rig_queue()));
    a.step = 1, a.split = true;
    CHECK_STATUS(SHAPE, adamw(&ops_cpu_reference, &a, NULL, rig_queue()));
}

OPS_TEST(adamw_of_any_range_agrees_with_the_reference)
{
    static const size_t lengths[] = {0, 1, 7, 8, 1003};
    enum { ALL = 1010 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int kind = 0; kind < 6; kind++) { /* ranges of any alignment; kinds of copies */
            size_t n = lengths[i], at = (size_t)kind % 2;
            enum dtype dtype = kind / 2 == 1 ? BF16 : F32;
            float *w[2], *m[2], *v[2], *g = rig_random(4, ALL, F32);
            void *copy[2];
            for (int table = 0; table < 2; table++) {
                w[table] = rig_random(1, ALL, F32), m[table] = rig_random(2, ALL, F32);
                v[table] = rig_zeros(ALL, F32), copy[table] = rig_zeros(ALL, dtype);
                struct adamw a = usual(n, 3);
                a.copy_dtype = dtype;
                struct adamw_io io = {w[table] + at, m[table] + at, v[table] + at,
                                      g + at,        NULL,          NULL};
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

/* Odd sizes of aligned and unaligned ranges. */
static const size_t ranges[][2] = {{0, 0}, {0, 1}, {0, 8}, {8, 1003}, {1, 1000}, {16, 4104}};
enum { RANGES = sizeof ranges / sizeof *ranges, ROOM = 5000 };

OPS_TEST(split_weights_match_float32_masters_bit_for_bit)
{
    for (size_t i = 0; i < 2 * RANGES; i++) {
        size_t at = ranges[i / 2][0], n = ranges[i / 2][1];
        const struct ops *ops = i % 2 ? rig_fast() : &ops_cpu_reference;
        float *w = rig_random(1, ROOM, F32), *back = rig_zeros(ROOM, F32);
        bf16 *copy = rig_zeros(ROOM, BF16), *half = rig_zeros(ROOM, BF16);
        uint16_t *low = rig_zeros(ROOM, BF16);
        float *m[2], *v[2];
        for (int k = 0; k < ROOM; k++) split_from_f32(w[k], &half[k], &low[k]);
        for (int k = 0; k < 2; k++) m[k] = rig_random(2, ROOM, F32), v[k] = rig_zeros(ROOM, F32);
        for (int step = 1; step <= 3; step++) {
            float *g = rig_random((uint64_t)step + 4, ROOM, F32);
            struct adamw a = usual(n, step);
            struct adamw_io whole = {w + at, m[0] + at, v[0] + at, g + at, copy + at, NULL};
            struct adamw_io parts = {NULL, m[1] + at, v[1] + at, g + at, half + at, low + at};
            a.copy_dtype = BF16;
            RIG_RUN(adamw(ops, &a, &whole, rig_queue()));
            a.split = true;
            RIG_RUN(adamw(ops, &a, &parts, rig_queue()));
            free(g);
        }
        struct unsplit all = {ROOM};
        struct unsplit_io io = {half, low, back};
        RIG_RUN(unsplit(ops, &all, &io, rig_queue()));
        CHECK(!memcmp(back, w, ROOM * sizeof *w));
        CHECK(!memcmp(m[0], m[1], ROOM * sizeof *w) && !memcmp(v[0], v[1], ROOM * sizeof *w));
        for (size_t k = at; k < at + n; k++)
            CHECK(half[k] == copy[k] || low[k] == 0x8000u); /* only ties round differently */
        free(w), free(back), free(copy), free(half), free(low);
        for (int k = 0; k < 2; k++) free(m[k]), free(v[k]);
    }
}

OPS_TEST(bfloat16_moments_agree_with_the_reference)
{
    for (size_t i = 0; i < 2 * RANGES; i++) {
        size_t at = ranges[i / 2][0], n = ranges[i / 2][1];
        enum dtype dtype = i % 2 ? BF16 : F32;
        float *w[2], *g = rig_random(4, ROOM, F32);
        bf16 *m[2], *v[2], *copy[2];
        for (int k = 0; k < 2; k++) {
            w[k] = rig_random(1, ROOM, F32), m[k] = rig_random(2, ROOM, BF16);
            v[k] = rig_zeros(ROOM, BF16), copy[k] = rig_zeros(ROOM, F32);
            struct adamw a = usual(n, 3);
            a.moments = BF16, a.copy_dtype = dtype, a.seed = 5, a.position = 3;
            struct adamw_io io = {w[k] + at, m[k] + at, v[k] + at, g + at, copy[k] + 8, NULL};
            RIG_RUN(adamw(k ? rig_fast() : &ops_cpu_reference, &a, &io, rig_queue()));
        }
        rig_check_close("w", w[1], w[0], ROOM, F32, 1e-6);
        rig_check_close("m", m[1], m[0], ROOM, BF16, 1e-3);
        rig_check_close("v", v[1], v[0], ROOM, BF16, 1e-3);
        for (int k = 0; k < 2; k++) free(w[k]), free(m[k]), free(v[k]), free(copy[k]);
        free(g);
    }
}

/* Without a gradient v' = beta2 v is the same in f32 on every backend, and so is its rounding.
 * `run` 0: elements are contiguous in the model. */
static void round_seconds(const struct ops *ops, size_t n, size_t at, uint64_t run, bf16 *v)
{
    float *w = rig_zeros(ROOM, F32);
    bf16 *m = rig_zeros(ROOM, BF16);
    struct adamw a = usual(n, 70);
    a.moments = BF16, a.beta2 = 0.9995, a.seed = UINT64_C(1) << 40 | 9;
    a.position = (UINT64_C(1) << 33) + 5 + at, a.run = run, a.stride = 3 * run;
    struct adamw_io io = {w + at, m + at, v + at, w + at, NULL, NULL};
    RIG_RUN(adamw(ops, &a, &io, rig_queue()));
    free(w), free(m);
}

OPS_TEST(stochastic_rounding_depends_on_the_position_in_the_model)
{
    bf16 *want = rig_zeros(ROOM, BF16), *got = rig_zeros(ROOM, BF16);
    for (uint64_t run = 0; run < 40; run += 13) {
        double sum = 0;
        for (int i = 0; i < ROOM; i++) want[i] = got[i] = bf16_from_f32(1.5f);
        round_seconds(&ops_cpu_reference, ROOM, 0, run, want);
        if (run) {
            round_seconds(rig_fast(), ROOM, 0, run, got);
        } else { /* in two calls */
            round_seconds(rig_fast(), 1001, 0, 0, got);
            round_seconds(rig_fast(), ROOM - 1001, 1001, 0, got);
        }
        CHECK(!memcmp(want, got, ROOM * sizeof *want));
        for (int i = 0; i < ROOM; i++) sum += (double)bf16_to_f32(got[i]);
        /* Rounding to nearest would keep all at 1.5.  The standard deviation of the mean is 3.4e-5.
         */
        CHECK(fabs(sum / ROOM - 1.5 * 0.9995) < 2e-4);
        for (int i = 0; i < ROOM; i++) want[i] = got[i] = bf16_from_f32(1.5f);
    }
    free(want), free(got);
}

OPS_TEST(axpby_follows_the_formula_in_place_too)
{
    for (size_t i = 0; i < RANGES; i++) {
        size_t at = ranges[i][0], n = ranges[i][1];
        float *x = rig_random(1, ROOM, F32), *y = rig_random(2, ROOM, F32);
        float *old = rig_random(2, ROOM, F32), *z = rig_zeros(ROOM, F32);
        struct axpby a = {n, 0.3, -1.7}, scaled = {n, 0.3, 0};
        struct axpby_io in_place = {x + at, y + at, y + at}, alone = {x + at, NULL, z + at};
        RIG_RUN(axpby(rig_fast(), &a, &in_place, rig_queue()));
        RIG_RUN(axpby(rig_fast(), &scaled, &alone, rig_queue()));
        for (size_t k = 0; k < ROOM; k++) {
            bool inside = k >= at && k < at + n;
            double want = 0.3 * (double)x[k] - 1.7 * (double)old[k];
            CHECK_NEAR((double)y[k], inside ? want : (double)old[k], 1e-6);
            CHECK_NEAR((double)z[k], inside ? 0.3 * (double)x[k] : 0, 1e-6);
        }
        free(x), free(y), free(old), free(z);
    }
}

OPS_TEST(matrix_polynomial_follows_the_formula_on_the_diagonal_too)
{
    static const int sizes[] = {1, 2, 7, 8, 33, 64};
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        enum dtype dtype = k & 1 ? BF16 : F32;
        size_t n = (size_t)sizes[k / 2], all = n * n;
        float *square = rig_random(1, all, F32);
        void *x = rig_random(2, all, dtype), *want = rig_copy(x, all, dtype);
        for (size_t i = 0; i < all; i++) {
            float old = dtype == F32 ? ((float *)x)[i] : bf16_to_f32(((bf16 *)x)[i]);
            float p = fmaf(2.0315f, square[i], -4.775f * old) + (i / n == i % n ? 3.4445f : 0);
            if (dtype == F32)
                ((float *)want)[i] = p;
            else
                ((bf16 *)want)[i] = bf16_from_f32(p);
        }
        struct matrix_polynomial a = {(int)n, 3.4445, -4.775, 2.0315, dtype};
        RIG_RUN(matrix_polynomial(rig_fast(), &a, &(struct matrix_polynomial_io){square, x},
                                  rig_queue()));
        CHECK(!memcmp(x, want, all * dtype_bytes(dtype)));
        free(square), free(x), free(want);
    }
}

OPS_TEST(apply_update_decays_weights_and_writes_the_copy_or_both_halves)
{
    for (size_t i = 0; i < RANGES; i++) {
        size_t at = ranges[i][0], n = ranges[i][1];
        float *w = rig_zeros(ROOM, F32), *old = rig_zeros(ROOM, F32), *u = rig_random(2, ROOM, F32);
        float *back = rig_zeros(ROOM, F32);
        bf16 *copy = rig_zeros(ROOM, BF16), *half = rig_zeros(ROOM, BF16);
        uint16_t *low = rig_zeros(ROOM, BF16);
        for (size_t k = 0; k < ROOM; k++) {
            w[k] = old[k] = (float)k / 7 - 3;
            split_from_f32(w[k], &half[k], &low[k]);
        }
        struct apply_update a = {.n = n, .keep = 0.9, .rate = 0.1, .copy_dtype = BF16};
        struct apply_update_io whole = {w + at, u + at, copy + at, NULL};
        struct apply_update_io halves = {NULL, u + at, half + at, low + at};
        RIG_RUN(apply_update(rig_fast(), &a, &whole, rig_queue()));
        a.split = true;
        RIG_RUN(apply_update(rig_fast(), &a, &halves, rig_queue()));
        struct unsplit_io io = {half, low, back};
        RIG_RUN(unsplit(rig_fast(), &(struct unsplit){ROOM}, &io, rig_queue()));
        CHECK(!memcmp(back, w, ROOM * sizeof *w));
        for (size_t k = 0; k < ROOM; k++) {
            bool inside = k >= at && k < at + n;
            double want = 0.9 * (double)old[k] - 0.1 * (double)u[k];
            CHECK_NEAR((double)w[k], inside ? want : (double)old[k], 2e-5);
            CHECK(copy[k] == (inside ? bf16_from_f32(w[k]) : 0));
        }
        free(w), free(old), free(u), free(back), free(copy), free(half), free(low);
    }
}

/* An element may be in a register's worth of others in one rank's shard, and in the tail of
 * another's. */
OPS_TEST(an_update_has_the_same_bits_in_any_range)
{
    enum { COUNT = 77 };
    float *x = rig_random(1, COUNT, F32), *u = rig_random(2, COUNT, F32), *z[2], *w[2], *p[2];
    float *m[2], *v[2];
    for (int k = 0; k < 2; k++) {
        z[k] = rig_zeros(COUNT, F32), w[k] = rig_random(3, COUNT, F32);
        p[k] = rig_random(4, COUNT, F32), m[k] = rig_random(5, COUNT, F32);
        v[k] = rig_random(6, COUNT, F32);
        for (int i = 0; i < COUNT; i++) v[k][i] *= v[k][i];
        for (size_t i = 0, n = k ? 1 : COUNT; i < COUNT; i += n) {
            struct axpby sum = {n, 0.3, -1.7};
            struct axpby_io of_sum = {x + i, u + i, z[k] + i};
            struct apply_update update = {.n = n, .keep = 0.93, .rate = 0.17};
            struct apply_update_io of_update = {w[k] + i, u + i, NULL, NULL};
            struct adamw step = usual(n, 3);
            struct adamw_io of_step = {p[k] + i, m[k] + i, v[k] + i, u + i, NULL, NULL};
            RIG_RUN(axpby(rig_fast(), &sum, &of_sum, rig_queue()));
            RIG_RUN(apply_update(rig_fast(), &update, &of_update, rig_queue()));
            RIG_RUN(adamw(rig_fast(), &step, &of_step, rig_queue()));
        }
    }
    CHECK(!memcmp(z[0], z[1], COUNT * sizeof(float)));
    CHECK(!memcmp(w[0], w[1], COUNT * sizeof(float)));
    CHECK(!memcmp(p[0], p[1], COUNT * sizeof(float)));
    CHECK(!memcmp(m[0], m[1], COUNT * sizeof(float)));
    CHECK(!memcmp(v[0], v[1], COUNT * sizeof(float)));
    free(x), free(u);
    for (int k = 0; k < 2; k++) free(z[k]), free(w[k]), free(p[k]), free(m[k]), free(v[k]);
}

TEST(apply_update_rejects_split_weights_with_a_float32_copy)
{
    struct apply_update a = {.n = 1, .split = true};
    CHECK_STATUS(SHAPE, apply_update(&ops_cpu_reference, &a, NULL, rig_queue()));
}

OPS_TEST(update_ema_agrees_with_the_reference_and_its_bits_with_any_range)
{
    for (size_t i = 0; i < RANGES; i++) {
        size_t at = ranges[i][0], n = ranges[i][1];
        float *w = rig_random(1, ROOM, F32), *ema[4];
        bf16 *half = rig_zeros(ROOM, BF16);
        uint16_t *low = rig_zeros(ROOM, BF16);
        struct update_ema a = {n, 0.99, false}, one = {1, 0.99, false};
        for (int k = 0; k < 4; k++) ema[k] = rig_random(2, ROOM, F32);
        for (int k = 0; k < ROOM; k++) split_from_f32(w[k], &half[k], &low[k]);
        struct update_ema_io plain = {w + at, NULL, NULL, ema[0] + at}, same = plain;
        struct update_ema_io split = {NULL, half + at, low + at, ema[2] + at};
        same.ema_n = ema[1] + at;
        RIG_RUN(update_ema(rig_fast(), &a, &plain, rig_queue()));
        RIG_RUN(update_ema(&ops_cpu_reference, &a, &same, rig_queue()));
        a.split = true;
        RIG_RUN(update_ema(rig_fast(), &a, &split, rig_queue()));
        for (size_t k = at; k < at + (n < 40 ? n : 40); k++) {
            struct update_ema_io single = {w + k, NULL, NULL, ema[3] + k};
            RIG_RUN(update_ema(rig_fast(), &one, &single, rig_queue()));
            CHECK(!memcmp(&ema[3][k], &ema[0][k], sizeof(float)));
        }
        for (int k = 0; k < ROOM; k++) CHECK_NEAR((double)ema[0][k], (double)ema[1][k], 1e-6);
        CHECK(!memcmp(ema[0], ema[2], ROOM * sizeof(float)));
        free(w), free(half), free(low);
        for (int k = 0; k < 4; k++) free(ema[k]);
    }
}

/* The same bits as gradients of the same values in float32. */
OPS_TEST(gradients_may_be_bfloat16)
{
    for (size_t i = 0; i < 2 * RANGES; i++) {
        size_t at = ranges[i / 2][0], n = ranges[i / 2][1];
        enum dtype moments = i % 2 ? BF16 : F32;
        bf16 *narrow = rig_random(4, ROOM, BF16);
        float *wide = rig_zeros(ROOM, F32), *w[2];
        void *m[2], *v[2];
        double sums[2] = {-1, -2};
        for (int k = 0; k < ROOM; k++) wide[k] = bf16_to_f32(narrow[k]);
        for (int k = 0; k < 2; k++) {
            w[k] = rig_random(1, ROOM, F32);
            m[k] = rig_random(2, ROOM, moments), v[k] = rig_zeros(ROOM, moments);
            struct adamw a = usual(n, 3);
            a.moments = moments, a.gradients = k ? BF16 : F32;
            size_t offset = at * dtype_bytes(moments);
            struct adamw_io io = {w[k] + at,
                                  (char *)m[k] + offset,
                                  (char *)v[k] + offset,
                                  k ? (void *)(narrow + at) : wide + at,
                                  NULL,
                                  NULL};
            RIG_RUN(adamw(rig_fast(), &a, &io, rig_queue()));
            struct sum_squares s = {.n = n, .dtype = k ? BF16 : F32};
            struct sum_squares_io squares = {io.g_n, &sums[k]};
            RIG_RUN(sum_squares(rig_fast(), &s, &squares, rig_queue()));
        }
        CHECK(!memcmp(w[0], w[1], ROOM * sizeof *w[0]) && sums[0] == sums[1]);
        CHECK(!memcmp(m[0], m[1], ROOM * dtype_bytes(moments)));
        CHECK(!memcmp(v[0], v[1], ROOM * dtype_bytes(moments)));
        for (int k = 0; k < 2; k++) free(w[k]), free(m[k]), free(v[k]);
        free(narrow), free(wide);
    }
}
