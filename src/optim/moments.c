// SPDX-License-Identifier: Apache-2.0
#include "optim/moments.h"

#include "base/text.h"

#include <stdlib.h>

enum { MIN_ELEMENTS = 4096 };

bool moments_are_quantized(const struct tensor_slot *t)
{
    return t->columns > 1 && t->elements >= MIN_ELEMENTS && t->elements % BLOCKWISE_BLOCK == 0;
}

static enum status check_run(const struct tensor_slot *t, const struct shard_run *p)
{
    char name[96];
    if ((p->at | p->first | p->count) % BLOCKWISE_BLOCK == 0) return STATUS_OK;
    layout_tensor_name(t, true, name);
    FAIL(CONFIG,
         "optimizer.state_dtype = \"int8\": a shard would cut blocks of %d elements, as it holds "
         "%zu "
         "elements from element %zu on of %s (%lld x %lld): use a "
         "parallelism.tensor_parallel_degree that leaves slices of a multiple of %d columns, or "
         "optimizer.state_dtype = \"bfloat16\"",
         BLOCKWISE_BLOCK, p->count, p->first, name, (long long)t->rows, (long long)t->columns,
         BLOCKWISE_BLOCK);
}

/* Lists the elements that stay f32; returns how many there are. */
static enum status find_ranges(struct quantized_moments *q, const struct layout *whole,
                               const struct shard *shard, size_t *elements)
{
    size_t count = 0;
    q->ranges = heap((shard->count + 1) * sizeof *q->ranges);
    *elements = 0;
    for (size_t i = 0; i < shard->count; i++) {
        const struct shard_run *p = &shard->runs[i];
        const struct tensor_slot *t = &whole->tensors[p->tensor];
        if (moments_are_quantized(t)) {
            TRY(check_run(t, p));
            continue;
        }
        q->ranges[count++] = (struct store_range){p->at, p->count, *elements};
        *elements += p->count;
    }
    for (int i = 0; i < 2; i++) {
        q->blocks[i].ranges = q->ranges;
        q->blocks[i].num_ranges = count;
    }
    return STATUS_OK;
}

enum status moments_alloc(struct quantized_moments *q, const struct layout *whole,
                          const struct shard *shard, struct arena *run)
{
    size_t n = shard->elements, full;
    *q = (struct quantized_moments){.blocks = {{.is_signed = true}}};
    TRY(find_ranges(q, whole, shard, &full));
    for (int i = 0; i < 2; i++) {
        struct store_blocks *b = &q->blocks[i];
        b->scales = arena_alloc(run, blockwise_num_blocks(n), sizeof *b->scales);
        b->full = arena_alloc(run, full, sizeof *b->full);
    }
    return STATUS_OK;
}

void moments_release(struct quantized_moments *q)
{
    free(q->ranges);
    *q = (struct quantized_moments){0};
}
