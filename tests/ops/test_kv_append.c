// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/kv_append.h"

/* Keys and values, which begin `offset` elements into their buffers, into every third slot. */
static void check_append(int N, int P, size_t offset, enum dtype dtype)
{
    struct kv_append a = {N, P, dtype};
    size_t slots = 3 * (size_t)N, row = (size_t)P * dtype_bytes(dtype),
           at = offset * dtype_bytes(dtype);
    size_t count = (size_t)N * (size_t)P + offset, room = slots * (size_t)P + offset;
    int32_t *to = heap((size_t)N * sizeof *to);
    char *new[2], *cache[2], *before[2];
    for (int n = 0; n < N; n++) to[n] = 3 * (N - 1 - n) + 1;
    for (int i = 0; i < 2; i++) {
        new[i] = rig_random(1 + (uint64_t)i, count, dtype);
        cache[i] = rig_random(3 + (uint64_t)i, room, dtype);
        before[i] = rig_random(3 + (uint64_t)i, room, dtype);
    }
    struct kv_append_io io = {new[0] + at, new[1] + at, to, cache[0] + at, cache[1] + at};
    RIG_RUN(kv_append(rig_fast(), &a, &io, rig_queue()));
    for (int i = 0; i < 2; i++) {
        for (size_t s = 0; s < slots; s++) {
            size_t n = (size_t)N - 1 - s / 3;
            const char *expected = s % 3 == 1 ? new[i] + at + n *row : before[i] + at + s *row;
            CHECK(!memcmp(cache[i] + at + s * row, expected, row));
        }
        CHECK(!memcmp(cache[i], before[i], at));
        free(new[i]), free(cache[i]), free(before[i]);
    }
    free(to);
}

OPS_TEST(keys_and_values_are_stored_in_the_slots_of_their_tokens)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        check_append(1, 1, 0, (enum dtype)d);
        check_append(37, 77, 0, (enum dtype)d);
        check_append(64, 256, 0, (enum dtype)d);
        check_append(5, 64, 1, (enum dtype)d); /* aligned rows in buffers that are not */
    }
}

TEST(kv_append_rejects_empty_sizes)
{
    CHECK_STATUS(SHAPE,
                 kv_append(&ops_cpu_reference, &(struct kv_append){0, 1, F32}, NULL, rig_queue()));
    CHECK_STATUS(SHAPE,
                 kv_append(&ops_cpu_reference, &(struct kv_append){1, 0, F32}, NULL, rig_queue()));
}
