// SPDX-License-Identifier: Apache-2.0
#include "comm/transfer.h"

#include "test.h"

TEST(transfer_shards_cover_every_element_once)
{
    for (size_t count = 0; count < 40; count++)
        for (int size = 1; size <= 7; size++) {
            size_t begin, end = 0;
            for (int r = 0; r < size; r++) {
                size_t shard = transfer_shard(count, size, r, &begin);
                CHECK(begin == end);
                end = begin + shard;
            }
            CHECK(end == count);
        }
}

TEST(transfer_chunks_bound_the_working_memory)
{
    CHECK(transfer_chunk(5, 8) == 5);
    CHECK(transfer_chunk(SIZE_MAX, 8) == (1 << 22) / 8);
    CHECK(transfer_work_bytes(TRANSFER_reduce_scatter, F32, 10, 4) == 4 * 10 * 4);
    CHECK(transfer_work_bytes(TRANSFER_all_reduce, BF16, 10, 4) == 4 * 3 * 2);
    CHECK(transfer_work_bytes(TRANSFER_all_reduce, F32, SIZE_MAX / 64, 4) == 4 * (1 << 22));
}

TEST(transfer_needs_working_memory_only_to_sum_over_several_ranks)
{
    CHECK(transfer_work_bytes(TRANSFER_reduce_scatter, F32, 3, 1) == 0);
    CHECK(transfer_work_bytes(TRANSFER_all_gather, F32, 3, 4) == 0);
    CHECK(transfer_work_bytes(TRANSFER_send, F32, 3, 4) == 0);
}

TEST(transfer_elements_are_of_its_dtype_or_bytes)
{
    struct transfer t = {.kind = TRANSFER_broadcast, .dtype = BF16, .count = 3};
    CHECK(transfer_element_bytes(&t) == 2 && !strcmp(transfer_element_name(&t), "bfloat16"));
    t.is_bytes = true;
    CHECK(transfer_element_bytes(&t) == 1 && !strcmp(transfer_element_name(&t), "bytes"));
    CHECK(!strcmp(transfer_name(t.kind), "broadcast"));
}
