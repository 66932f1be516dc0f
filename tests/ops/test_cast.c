// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/update.h"

OPS_TEST(cast_rounds_to_nearest_even_and_converts_back)
{
    float x[4] = {1.00390625f, 1.01171875f, -3.5f, INFINITY};
    for (int table = 0; table < 2; table++) {
        bf16 y[4] = {0};
        float back[4] = {0};
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        struct cast narrow = {.n = 4, .from = F32, .to = BF16}, widen = {.n = 4, .from = BF16};
        RIG_RUN(cast(ops, &narrow, &(struct cast_io){x, y}, rig_queue()));
        RIG_RUN(cast(ops, &widen, &(struct cast_io){y, back}, rig_queue()));
        CHECK(back[0] == 1.0f && back[1] == 1.015625f && back[2] == -3.5f && isinf(back[3]));
    }
}

OPS_TEST(cast_copies_strided_rows)
{
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        float x[12], y[15] = {0};
        bf16 half[15];
        for (int i = 0; i < 12; i++) x[i] = (float)i;
        struct cast rows = {.n = 3, .rows = 3, .from_stride = 4, .to_stride = 5, .to = BF16};
        struct cast back = {
            .n = 3, .rows = 3, .from_stride = 5, .to_stride = 5, .from = BF16, .accumulate = true};
        for (int i = 0; i < 15; i++) half[i] = bf16_from_f32(-1);
        RIG_RUN(cast(ops, &rows, &(struct cast_io){x, half}, rig_queue()));
        CHECK_STATUS(OK, cast(ops, &back, &(struct cast_io){half, y}, rig_queue()));
        for (int i = 0; i < 15; i++) {
            bool there = i % 5 < 3;
            CHECK(bf16_to_f32(half[i]) == (there ? x[i / 5 * 4 + i % 5] : -1));
            CHECK(y[i] == (there ? x[i / 5 * 4 + i % 5] : 0));
        }
    }
}

OPS_TEST(cast_agrees_with_the_reference_at_odd_sizes)
{
    enum { SPACE = 5 * 1008 };
    static const struct cast sizes[] = {
        {.n = 1},
        {.n = 2053},
        {.n = 264, .rows = 5, .from_stride = 1008, .to_stride = 272},
        {.n = 13, .rows = 5, .from_stride = 16, .to_stride = 1008},
        {.n = 8, .rows = 3, .from_stride = 9, .to_stride = 8},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 8; variant++) {
            struct cast c = sizes[i];
            c.from = variant & 1 ? BF16 : F32, c.to = variant & 2 ? BF16 : F32;
            c.accumulate = variant & 4;
            void *x = rig_random(1, SPACE, c.from), *y[2];
            for (int k = 0; k < 2; k++) {
                y[k] = rig_random(2, SPACE, c.to);
                struct cast_io io = {x, y[k]};
                RIG_RUN(cast(k ? rig_fast() : &ops_cpu_reference, &c, &io, rig_queue()));
            }
            CHECK(!memcmp(y[0], y[1], SPACE * dtype_bytes(c.to)));
            free(x), free(y[0]), free(y[1]);
        }
}

TEST(cast_rejects_overlapping_rows)
{
    struct cast rows = {.n = 3, .rows = 2, .from_stride = 3, .to_stride = 2};
    CHECK_STATUS(SHAPE, cast(&ops_cpu_reference, &rows, NULL, rig_queue()));
}

OPS_TEST(cast_multiplies_by_its_scale)
{
    enum { N = 2053 };
    for (int variant = 0; variant < 8; variant++) {
        struct cast c = {.n = N,
                         .from = variant & 1 ? BF16 : F32,
                         .to = variant & 2 ? BF16 : F32,
                         .accumulate = variant & 4,
                         .scale = -0.37f};
        void *x = rig_random(1, N, c.from), *y[2], *before = rig_random(2, N, c.to);
        for (int k = 0; k < 2; k++) {
            y[k] = rig_copy(before, N, c.to);
            struct cast_io io = {x, y[k]};
            RIG_RUN(cast(k ? rig_fast() : &ops_cpu_reference, &c, &io, rig_queue()));
        }
        RIG_CLOSE(y[1], y[0], N, c.to);
        for (size_t i = 0; i < N && !(variant & 3); i++) {
            double old = c.accumulate ? (double)((float *)before)[i] : 0;
            CHECK_NEAR((double)((float *)y[0])[i], old - 0.37 * (double)((float *)x)[i], 1e-6);
        }
        if (c.from == c.to && !c.accumulate) { /* in place */
            RIG_RUN(cast(rig_fast(), &c, &(struct cast_io){x, x}, rig_queue()));
            CHECK(!memcmp(x, y[1], N * dtype_bytes(c.to)));
        }
        free(x), free(y[0]), free(y[1]), free(before);
    }
}

OPS_TEST(cast_accumulates_on_request)
{
    for (int table = 0; table < 2; table++) {
        const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
        float x[3] = {1, 2, -3}, y[3] = {0.5f, -2, 4};
        bf16 half[3] = {bf16_from_f32(1), bf16_from_f32(-4), 0};
        struct cast add = {.n = 3, .accumulate = true},
                    add_half = {.n = 3, .to = BF16, .accumulate = true};
        RIG_RUN(cast(ops, &add, &(struct cast_io){x, y}, rig_queue()));
        RIG_RUN(cast(ops, &add_half, &(struct cast_io){x, half}, rig_queue()));
        CHECK(y[0] == 1.5f && y[1] == 0 && y[2] == 1);
        CHECK(bf16_to_f32(half[0]) == 2 && bf16_to_f32(half[1]) == -2 &&
              bf16_to_f32(half[2]) == -3);
    }
}
