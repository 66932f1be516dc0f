// SPDX-License-Identifier: Apache-2.0
#include "optim/moments.h"

#include "base/text.h"

#include <stdlib.h>

enum { MIN_ELEMENTS = 4096 };

bool moments_are_quantized(const struct tensor_slot *t)
{
    return t->columns > 1 && t->elements >= MIN_ELEMENTS && t->elements % BLOCKWISE_BLOCK == 0;
}

/* Whether blocks end where each of `num_slices` slices of `whole` does; `t`: one of them. */
static bool slices_keep_blocks(const struct tensor_slot *t, const struct tensor_slot *whole,
                               int num_slices)
{
    const struct model_shape s = {.V = (int)whole->rows, .num_slices = num_slices};
    if (params[t->id].tp == 'V') { /* the last slices may have a token less */
        for (int i = 1; i < num_slices; i++)
            if (model_shape_vocab(&s, i).first * whole->columns % BLOCKWISE_BLOCK) return false;
        return true;
    }
    bool by_columns = t->columns != whole->columns;
    return (by_columns ? (size_t)t->columns : t->elements) % BLOCKWISE_BLOCK == 0;
}

enum status moments_check(const struct layout *local, const struct layout *whole, int num_slices)
{
    for (int i = 0; i < local->num_tensors; i++) {
        const struct tensor_slot *t = &local->tensors[i];
        const struct tensor_slot *of = layout_find(whole, t->id, t->layer);
        char name[96];
        if (!moments_are_quantized(of) || slices_keep_blocks(t, of, num_slices)) continue;
        layout_tensor_name(of, true, name);
        FAIL(CONFIG,
             "optimizer.state_dtype = \"int8\": parallelism.tensor_parallel_degree = %d cuts "
             "blocks of %d elements of %s (%lld x %lld): use a degree that leaves slices of a "
             "multiple of %d %s, or optimizer.state_dtype = \"bfloat16\"",
             num_slices, BLOCKWISE_BLOCK, name, (long long)of->rows, (long long)of->columns,
             BLOCKWISE_BLOCK, t->columns != of->columns ? "columns" : "elements");
    }
    return STATUS_OK;
}

/* Lists the elements that stay f32; returns how many there are. */
static size_t find_ranges(struct quantized_moments *q, const struct layout *whole,
                          const struct shard *shard)
{
    size_t count = 0, elements = 0;
    q->ranges = heap((shard->count + 1) * sizeof *q->ranges);
    for (size_t i = 0; i < shard->count; i++) {
        const struct shard_run *p = &shard->runs[i];
        const struct tensor_slot *t = &whole->tensors[p->tensor];
        if (moments_are_quantized(t)) {
            BUG_IF((p->at | p->first | p->count) % BLOCKWISE_BLOCK != 0);
            continue;
        }
        q->ranges[count++] = (struct store_range){p->at, p->count, elements};
        elements += p->count;
    }
    for (int i = 0; i < 2; i++) {
        q->blocks[i].ranges = q->ranges;
        q->blocks[i].num_ranges = count;
    }
    return elements;
}

void moments_alloc(struct quantized_moments *q, const struct layout *whole,
                   const struct shard *shard, struct arena *run)
{
    size_t n = shard->elements;
    *q = (struct quantized_moments){.blocks = {{.is_signed = true}}};
    size_t full = find_ranges(q, whole, shard);
    for (int i = 0; i < 2; i++) {
        struct store_blocks *b = &q->blocks[i];
        b->scales = arena_alloc(run, blockwise_num_blocks(n), sizeof *b->scales);
        b->full = arena_alloc(run, full, sizeof *b->full);
    }
}

void moments_release(struct quantized_moments *q)
{
    free(q->ranges);
    *q = (struct quantized_moments){0};
}
