// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"
#include "ops/float8.h"
#include "ops/rig.h"
#include "ops/rmsnorm.h"
#include "ops/swiglu.h"
#include "ops/update.h"

enum { EVERY = 1 << 16, SWEEP = 1 << 18 };

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The bits of the result, with every NaN as 7fc0. */
static void round_all(const struct ops *ops, struct quantize what, float scale, const void *x,
                      bf16 *y)
{
    struct float8_scale by = {scale, 1 / scale};
    for (size_t i = 0; i < what.n; i++) y[i] = 0x0101; /* not a value of either format */
    RIG_RUN(quantize(ops, &what, &(struct quantize_io){x, y, &by}, rig_queue()));
    for (size_t i = 0; i < what.n; i++)
        if ((y[i] & 0x7FFF) > 0x7F80) y[i] = 0x7FC0;
}

struct inputs {
    bf16 *every, *y;
    float *sweep;
};

/* A line of the output of tests/oracle/float8.py. */
static void check_line(const struct ops *ops, const struct inputs *in, const char *line)
{
    char kind[16], format[16];
    unsigned x, want;
    CHECK(sscanf(line, "%15s %15s %x %x", kind, format, &x, &want) == 4);
    struct quantize what = {.n = EVERY, .dtype = BF16, .to = strcmp(format, "E4M3") ? E5M2 : E4M3};
    if (!strcmp(kind, "one")) {
        float one = from_bits(x);
        what.n = 1, what.dtype = F32;
        round_all(ops, what, 1, &one, in->y);
        if (in->y[0] != want) fail_msg("%s: %04x", line, in->y[0]);
        return;
    }
    bool all = !strcmp(kind, "all");
    if (!all) what.n = SWEEP, what.dtype = F32;
    round_all(ops, what, from_bits(x), all ? (void *)in->every : (void *)in->sweep, in->y);
    uint32_t got = checksum_crc32c(0, in->y, what.n * sizeof *in->y);
    if (got != want) fail_msg("%s of %s: %08x", line, ops->backend, got);
}

OPS_TEST(quantize_matches_the_bits_of_ml_dtypes)
{
    struct inputs in = {heap(EVERY * sizeof(bf16)), heap(SWEEP * sizeof(bf16)),
                        heap(SWEEP * sizeof(float))};
    char line[128];
    int lines = 0;
    for (uint32_t i = 0; i < EVERY; i++) in.every[i] = (bf16)i;
    for (uint32_t i = 0; i < SWEEP; i++) in.sweep[i] = from_bits(i * 2654435761u);
    FILE *f = fopen("tests/ops/data/float8.txt", "r");
    CHECK(f);
    for (; fgets(line, sizeof line, f); lines++) {
        if (*line == '#') continue;
        check_line(&ops_cpu_reference, &in, line);
        check_line(rig_fast(), &in, line);
    }
    fclose(f);
    CHECK(lines == 73);
    free(in.every), free(in.y), free(in.sweep);
}

OPS_TEST(quantize_keeps_every_value_of_the_format)
{
    for (enum float8 to = 0; to < FLOAT8_COUNT; to++) {
        bf16 x[2] = {bf16_from_f32(float8_max(to)), bf16_from_f32(-float8_max(to))}, y[2];
        struct quantize what = {.n = 2, .dtype = BF16, .to = to};
        struct float8_scale one = {1, 1};
        RIG_RUN(quantize(rig_fast(), &what, &(struct quantize_io){x, y, &one}, rig_queue()));
        CHECK(!memcmp(x, y, sizeof x));
    }
}

OPS_TEST(amax_is_the_maximum_on_any_number_of_threads)
{
    static const size_t sizes[] = {1, 2, 63, 4096, 4097, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int half = 0; half < 2; half++) {
            enum dtype dtype = half ? BF16 : F32;
            size_t n = sizes[i], at = n * 2 / 3;
            void *x = rig_random(i, n, dtype);
            if (half)
                ((bf16 *)x)[at] = bf16_from_f32(-1000);
            else
                ((float *)x)[at] = -1000;
            struct amax what = {n, dtype};
            for (int threads = 1; threads <= 2; threads++) {
                float fast = 0, plain = 0;
                rig_queue()->num_threads = threads;
                RIG_RUN(amax(rig_fast(), &what, &(struct amax_io){x, &fast}, rig_queue()));
                RIG_RUN(amax(&ops_cpu_reference, &what, &(struct amax_io){x, &plain}, rig_queue()));
                CHECK(plain == bf16_to_f32(bf16_from_f32(1000)) && fast == plain);
            }
            free(x);
        }
}

OPS_TEST(amax_propagates_nan)
{
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        float x[5] = {1, -INFINITY, NAN, 3, 1e-45f}, got = 0;
        struct amax all = {5, F32}, two = {2, F32}, last = {1, F32};
        RIG_RUN(amax(ops, &all, &(struct amax_io){x, &got}, rig_queue()));
        CHECK(isnan(got));
        RIG_RUN(amax(ops, &two, &(struct amax_io){x, &got}, rig_queue()));
        CHECK(isinf(got) && got > 0);
        RIG_RUN(amax(ops, &last, &(struct amax_io){x + 4, &got}, rig_queue()));
        CHECK(got == 1e-45f);
    }
}

/* Checks that `found` is the amax of x, NaN included. */
static void check_largest(size_t n, enum dtype dtype, const void *x, float found)
{
    float want = -1;
    struct amax what = {n, dtype};
    CHECK_STATUS(OK, amax(&ops_cpu_reference, &what, &(struct amax_io){x, &want}, rig_queue()));
    CHECK(isnan(want) ? isnan(found) : found == want);
}

OPS_TEST(ops_return_the_amax_of_their_results)
{
    static const int sizes[][2] = {{1, 1}, {3, 7}, {5, 64}, {2, 1030}, {70, 24}};
    for (size_t k = 0; k < 4 * sizeof sizes / sizeof *sizes; k++) {
        enum dtype dtype = k % 2 ? BF16 : F32;
        int N = sizes[k / 4][0], D = sizes[k / 4][1];
        size_t n = (size_t)N * (size_t)D;
        float *x = rig_random(1, 2 * n, F32), largest[3] = {-1, 1e30f, NAN};
        if (k % 4 > 1) x[n - 1] = NAN;
        struct cast narrow = {.n = 2 * n, .from = F32, .to = dtype};
        void *in = rig_zeros(2 * n, dtype), *y = rig_zeros(n, dtype), *dy = rig_zeros(2 * n, dtype);
        CHECK_STATUS(OK, cast(&ops_cpu_reference, &narrow, &(struct cast_io){x, in}, rig_queue()));
        void *w = rig_random(2, (size_t)D, dtype), *dout = rig_random(3, n, dtype);
        float *rstd = rig_zeros((size_t)N, F32);
        struct rmsnorm norm = {.N = N, .D = D, .eps = 1e-5f, .dtype = dtype};
        struct rmsnorm_fwd normed = {in, w, y, rstd, &largest[0]};
        RIG_RUN(rmsnorm_forward(rig_fast(), &norm, &normed, rig_queue()));
        check_largest(n, dtype, y, largest[0]);
        struct swiglu gate = {N, D, dtype, false};
        struct swiglu_fwd gated = {in, y, &largest[1]};
        RIG_RUN(swiglu_forward(rig_fast(), &gate, &gated, rig_queue()));
        check_largest(n, dtype, y, largest[1]);
        struct swiglu_bwd back = {in, dout, dy, &largest[2]};
        RIG_RUN(swiglu_backward(rig_fast(), &gate, &back, rig_queue()));
        check_largest(2 * n, dtype, dy, largest[2]);
        free(x), free(in), free(y), free(dy), free(w), free(dout), free(rstd);
    }
}

TEST(amax_rejects_an_empty_tensor)
{
    CHECK_STATUS(SHAPE, amax(&ops_cpu_reference, &(struct amax){0}, NULL, rig_queue()));
}

OPS_TEST(scale_is_current_or_delayed)
{
    const struct ops *const tables[] = {&ops_cpu_reference, rig_fast()};
    for (size_t i = 0; i < 2; i++)
        for (enum float8 to = 0; to < FLOAT8_COUNT; to++) {
            struct find_scale what = {.to = to};
            float largest = 3, held = 0, seen = 2;
            struct float8_scale got = {0};
            struct find_scale_io io = {&largest, NULL, NULL, &got};
            RIG_RUN(find_scale(tables[i], &what, &io, rig_queue()));
            CHECK(got.scale == float8_current_scale(3, to) && got.inverse == 1 / got.scale);
            io.delayed = &held, io.running = &seen;
            RIG_RUN(find_scale(tables[i], &what, &io, rig_queue()));
            CHECK(got.scale == float8_current_scale(3, to) && seen == 3);
            held = 0.3f, largest = 1;
            RIG_RUN(find_scale(tables[i], &what, &io, rig_queue()));
            CHECK(got.scale == 0.3f && got.inverse == 1 / 0.3f && seen == 3);
            largest = NAN, held = 0;
            RIG_RUN(find_scale(tables[i], &what, &io, rig_queue()));
            CHECK(isnan(got.scale) && isnan(got.inverse) && seen == 3);
            largest = 0;
            RIG_RUN(find_scale(tables[i], &what, &io, rig_queue()));
            CHECK(got.scale == (float)((double)float8_max(to) / 1e-12));
        }
}

OPS_TEST(scale_is_that_of_the_largest_amax_of_the_parts)
{
    const struct ops *const tables[] = {&ops_cpu_reference, rig_fast()};
    for (size_t i = 0; i < 2; i++)
        for (int at = 0; at < 3; at++) {
            struct find_scale what = {E4M3, 3};
            float parts[] = {1, 1, 1, 100}, seen = 0; /* the last is not counted */
            struct float8_scale got;
            struct find_scale_io io = {parts, NULL, &seen, &got};
            parts[at] = 7;
            RIG_RUN(find_scale(tables[i], &what, &io, rig_queue()));
            CHECK(got.scale == float8_current_scale(7, E4M3) && seen == 7);
            parts[at] = NAN;
            RIG_RUN(find_scale(tables[i], &what, &io, rig_queue()));
            CHECK(isnan(got.scale) && seen == 7);
        }
}

OPS_TEST(amax_and_quantize_take_any_length_and_alignment)
{
    enum { ALL = 4200, MARK = 0x1234 };
    static const size_t lengths[] = {1, 7, 8, 9, 2047, 4099};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int kind = 0; kind < 4; kind++) {
            enum dtype dtype = kind & 1 ? BF16 : F32;
            size_t n = lengths[i], at = (size_t)kind / 2;
            void *x = rig_random(i, ALL, dtype);
            bf16 y[2][ALL];
            float largest[2];
            struct float8_scale by = {100, 0.01f};
            for (int table = 0; table < 2; table++) {
                const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
                const void *from = (const char *)x + at * dtype_bytes(dtype);
                struct amax a = {n, dtype};
                struct quantize q = {.n = n, .dtype = dtype, .to = E4M3};
                struct quantize_io io = {from, y[table] + at, &by};
                for (int k = 0; k < ALL; k++) y[table][k] = MARK;
                RIG_RUN(amax(ops, &a, &(struct amax_io){from, &largest[table]}, rig_queue()));
                RIG_RUN(quantize(ops, &q, &io, rig_queue()));
            }
            CHECK(largest[0] == largest[1] && !memcmp(y[0], y[1], sizeof y[0]));
            CHECK(y[1][at + n] == MARK && y[1][at] != MARK);
            free(x);
        }
}
