// SPDX-License-Identifier: Apache-2.0
#include "ops/accumulate_gradients.h"

#include "ops/rig.h"

enum { ROOM = 5000 };

static const size_t ranges[][2] = {{0, 0}, {0, 1}, {0, 8}, {8, 1003}, {1, 1000}, {16, 4104}};
enum { RANGES = sizeof ranges / sizeof *ranges };

OPS_TEST(gradients_in_bfloat16_have_the_bits_of_the_reference)
{
    for (size_t i = 0; i < 6 * RANGES; i++) {
        size_t at = ranges[i / 6][0], n = ranges[i / 6][1];
        float *x = rig_random(1, ROOM, F32);
        bf16 *want = rig_random(2, ROOM, BF16), *got = rig_random(2, ROOM, BF16);
        struct accumulate_gradients a = {.n = n,
                                         .accumulate = i % 2,
                                         .seed = UINT64_C(1) << 40 | 9,
                                         .step = 70,
                                         .index = 3,
                                         .position = (UINT64_C(1) << 33) + 5,
                                         .run = i % 3 * 13,
                                         .stride = i % 3 * 39};
        struct accumulate_gradients_io io = {x + at, want + at};
        RIG_RUN(accumulate_gradients(&ops_cpu_reference, &a, &io, rig_queue()));
        io.y_n = got + at;
        RIG_RUN(accumulate_gradients(rig_fast(), &a, &io, rig_queue()));
        CHECK(!memcmp(want, got, ROOM * sizeof *want));
        free(x), free(want), free(got);
    }
}

/* In two calls, as two shards would. */
OPS_TEST(rounding_of_gradients_depends_on_the_position_in_the_model)
{
    float *x = rig_random(1, ROOM, F32);
    bf16 *want = rig_zeros(ROOM, BF16), *got = rig_zeros(ROOM, BF16), *next = rig_zeros(ROOM, BF16);
    struct accumulate_gradients a = {.n = ROOM, .seed = 5, .step = 2, .index = 1, .position = 77};
    struct accumulate_gradients_io io = {x, want};
    RIG_RUN(accumulate_gradients(rig_fast(), &a, &io, rig_queue()));
    a.n = 1001, io.y_n = got;
    RIG_RUN(accumulate_gradients(rig_fast(), &a, &io, rig_queue()));
    a.n = ROOM - 1001, a.position += 1001, io.x_n = x + 1001, io.y_n = got + 1001;
    RIG_RUN(accumulate_gradients(rig_fast(), &a, &io, rig_queue()));
    CHECK(!memcmp(want, got, ROOM * sizeof *want));
    a.n = ROOM, a.position = 77, a.index = 2, io.x_n = x, io.y_n = next;
    RIG_RUN(accumulate_gradients(rig_fast(), &a, &io, rig_queue()));
    CHECK(memcmp(want, next, ROOM * sizeof *want)); /* other bits in the next microbatch */
    free(x), free(want), free(got), free(next);
}

/* Rounding to nearest would keep every sum at 1: each addend is a sixteenth of the last bit. */
OPS_TEST(small_gradients_are_not_lost_on_average)
{
    enum { TIMES = 64 };
    float *x = rig_zeros(ROOM, F32);
    bf16 *y = rig_zeros(ROOM, BF16);
    double sum = 0, addend = 0x1p-11;
    for (int i = 0; i < ROOM; i++) x[i] = (float)addend, y[i] = bf16_from_f32(1);
    for (uint64_t k = 0; k < TIMES; k++) {
        struct accumulate_gradients a = {
            .n = ROOM, .accumulate = true, .seed = 5, .step = 1, .index = k};
        struct accumulate_gradients_io io = {x, y};
        RIG_RUN(accumulate_gradients(rig_fast(), &a, &io, rig_queue()));
    }
    for (int i = 0; i < ROOM; i++) sum += (double)bf16_to_f32(y[i]);
    /* The standard deviation of the mean is 64^0.5 * 2^-9 / 5000^0.5 = 2.2e-4. */
    CHECK(fabs(sum / ROOM - (1 + TIMES * addend)) < 1.1e-3);
    free(x), free(y);
}

TEST(accumulate_gradients_rejects_too_many_additions)
{
    struct accumulate_gradients a = {.n = 1, .index = ACCUMULATE_GRADIENTS_MAX};
    CHECK_STATUS(SHAPE, accumulate_gradients(&ops_cpu_reference, &a, NULL, rig_queue()));
}
