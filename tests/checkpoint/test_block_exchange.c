// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/block_exchange.h"

#include "checkpoint/sharding.h"

/* Elements per block of the weights' first tensor; one block per rank. */
enum { BLOCK = 1000 };

struct exchange_test {
    enum sharding how;
    uint64_t received[4]; /* bytes received by block_exchange_fill */
};

static enum status fill_blocks(const struct comm *world, void *context)
{
    struct exchange_test *e = context;
    struct rank_shard s;
    struct block_exchange x;
    struct block_span spans[4];
    struct file_block blocks[4];
    float got[BLOCK];
    enum status st = STATUS_OK;
    rank_shard_open(&s, e->how, false, world->rank, world->size);
    rank_shard_fill(&s);
    struct tensor_source source = tensor_source_flat(s.buffers[0]);
    for (size_t r = 0; r < (size_t)world->size; r++) {
        spans[r] = (struct block_span){.first = 123 + BLOCK * r, .count = BLOCK, .source = &source};
        blocks[r] = (struct file_block){&spans[r], 1};
    }
    blocks[world->size - 1].count = 0; /* past the end of the file */
    TRY_OUT(block_exchange_open(&x, &s.layout, &s.shard, world));
    uint64_t *received = world->counts->bytes, before = received[TRANSFER_receive];
    TRY_OUT(block_exchange_fill(&x, blocks, SAFETENSORS_F32, got));
    e->received[world->rank] = received[TRANSFER_receive] - before;
    for (size_t i = 0; i < BLOCK && world->rank < world->size - 1; i++) {
        float want = sharding_value(0, 0, 123 + BLOCK * (size_t)world->rank + i);
        if (memcmp(&got[i], &want, sizeof want))
            FAIL_OUT(DATA, "rank %d: element %zu is %g", world->rank, i, (double)got[i]);
    }
out:
    block_exchange_close(&x);
    rank_shard_release(&s);
    return st;
}

TEST(ranks_assemble_whole_blocks_from_any_sharding)
{
    for (struct exchange_test e = {0}; e.how < SHARDING_COUNT; e.how++)
        for (int size = 2; size <= 4; size++) CHECK_STATUS(OK, ranks_run(size, fill_blocks, &e));
}

TEST(elements_a_rank_already_holds_are_not_sent_to_it)
{
    struct exchange_test all = {SHARDING_REPLICATED, {0}}, twice = {SHARDING_HSDP, {0}};
    struct exchange_test parts = {SHARDING_FSDP, {0}};
    CHECK_STATUS(OK, ranks_run(4, fill_blocks, &all));
    for (int r = 0; r < 4; r++) CHECK(all.received[r] == 0);
    /* The first tensor's beginning is in the shard of rank 0, replicated on rank 2. */
    CHECK_STATUS(OK, ranks_run(4, fill_blocks, &twice));
    CHECK(twice.received[0] == 4 && twice.received[2] == 4); /* empty messages from ranks that might
                                                              * hold some */
    CHECK(twice.received[1] == 4 * (1 + 2 + BLOCK));
    CHECK_STATUS(OK, ranks_run(4, fill_blocks, &parts));
    CHECK(parts.received[0] == 3 * 4 && parts.received[3] == 0);
    CHECK(parts.received[1] == 3 * 4 + 4 * (2 + BLOCK));
}

static enum status fill_with_hole(const struct comm *world, void *context)
{
    struct rank_shard s;
    struct block_exchange x;
    float got[BLOCK];
    enum status st = STATUS_OK;
    (void)context;
    rank_shard_open(&s, SHARDING_FSDP, false, world->rank, world->size);
    struct tensor_source source = tensor_source_flat(s.buffers[0]);
    struct block_span span = {.first = 0, .count = BLOCK, .source = &source};
    struct file_block blocks[2] = {{&span, 0}, {&span, 1}};
    for (size_t i = 0; i < s.shard.count; i++) /* declare one run shorter than it is */
        if (s.shard.runs[i].tensor == 0 && s.shard.runs[i].first == 0) s.shard.runs[i].count = 900;
    TRY_OUT(block_exchange_open(&x, &s.layout, &s.shard, world));
    enum status own = block_exchange_fill(&x, blocks, SAFETENSORS_F32, got);
    if (own != (world->rank == 1 ? STATUS_SHAPE : STATUS_OK)) FAIL_OUT(DATA, "status %d", own);
    if (own && !strstr(status_message(), "embed_tokens.weight: no rank holds element 900"))
        FAIL_OUT(DATA, "said: %s", status_message());
out:
    block_exchange_close(&x);
    rank_shard_release(&s);
    return st;
}

static enum status cannot_read(void *context, const struct shard_run *run, size_t first,
                               size_t count, const float **values)
{
    (void)context, (void)run, (void)first, (void)count, (void)values;
    FAIL(IO, "the device is gone");
}

/* Rank 0 lacks what rank 1 cannot read. */
static enum status fill_without_source(const struct comm *world, void *context)
{
    struct rank_shard s, last;
    struct block_exchange x;
    float got[BLOCK];
    enum status st = STATUS_OK;
    (void)context;
    rank_shard_open(&s, SHARDING_FSDP, false, world->rank, world->size);
    rank_shard_open(&last, SHARDING_FSDP, false, 1, world->size);
    struct tensor_source source = {.read = cannot_read};
    struct shard_run run = last.shard.runs[0];
    struct block_span span = {
        .tensor = run.tensor, .first = run.first, .count = 1, .source = &source};
    struct file_block blocks[2] = {{&span, 1}, {&span, 0}};
    TRY_OUT(block_exchange_open(&x, &s.layout, &s.shard, world));
    enum status own = block_exchange_fill(&x, blocks, SAFETENSORS_F32, got);
    if (own != (world->rank ? STATUS_IO : STATUS_OK)) FAIL_OUT(DATA, "status %d", own);
    enum status all = comm_agree(world, own);
    const char *says = world->rank ? "the device is gone" : "rank 1 failed";
    if (all != STATUS_IO || !strstr(status_message(), says))
        FAIL_OUT(DATA, "rank %d: status %d: %s", world->rank, all, status_message());
    if (status_is_remote() != !world->rank) FAIL_OUT(DATA, "said: %s", status_message());
out:
    block_exchange_close(&x);
    rank_shard_release(&s), rank_shard_release(&last);
    return st;
}

TEST(rank_that_cannot_read_its_shard_reports_why_itself)
{
    CHECK_STATUS(OK, ranks_run(2, fill_without_source, NULL));
}

TEST(element_that_no_rank_holds_is_named) { CHECK_STATUS(OK, ranks_run(2, fill_with_hole, NULL)); }

TEST(block_exchange_converts_to_the_files_dtype)
{
    struct rank_shard s;
    struct block_exchange x;
    uint16_t got[8];
    rank_shard_open(&s, SHARDING_REPLICATED, false, 0, 1);
    rank_shard_fill(&s);
    struct tensor_source source = tensor_source_flat(s.buffers[0]);
    struct block_span spans[2] = {
        {.first = 5, .count = 4, .source = &source},
        {.tensor = 2, .first = 70, .count = 3, .at = 4, .source = &source}};
    CHECK_STATUS(OK, block_exchange_open(&x, &s.layout, &s.shard, comm_self()));
    CHECK_STATUS(OK,
                 block_exchange_fill(&x, &(struct file_block){spans, 2}, SAFETENSORS_BF16, got));
    for (size_t i = 0; i < 7; i++)
        CHECK(got[i] ==
              bf16_from_f32(i < 4 ? sharding_value(0, 0, 5 + i) : sharding_value(0, 2, 66 + i)));
    block_exchange_close(&x);
    rank_shard_release(&s);
}
