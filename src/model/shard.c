// SPDX-License-Identifier: Apache-2.0
#include "model/shard.h"

#include "base/status.h"
#include "base/text.h"

#include <stdlib.h>

/* A shard as it is filled in. */
struct shard_builder {
    struct shard *shard;
    size_t capacity;
    struct shard_position at;
    const struct layout *whole;
};

static void append(struct shard_builder *b, struct shard_run run)
{
    struct shard *s = b->shard;
    if (s->count == b->capacity) s->runs = heap_grow(s->runs, b->capacity *= 2, sizeof *s->runs);
    s->runs[s->count++] = run;
}

/* Appends the part of `run`, whose first element counts from the start of the slice, that is not
 * padding. */
static void add_vocabulary(struct shard_builder *b, const struct tensor_slot *whole,
                           struct shard_run run)
{
    const struct model_shape s = {.V = (int)whole->rows, .num_slices = b->at.num_slices};
    struct vocab_slice here = model_shape_vocab(&s, b->at.slice);
    size_t columns = (size_t)whole->columns, elements = (size_t)here.tokens * columns;
    if (run.first >= elements) return;
    if (run.count > elements - run.first) run.count = elements - run.first;
    run.first += (size_t)here.first * columns;
    append(b, run);
}

/* Appends elements [from, to) of the sliced tensor `t`, at `offset` in the flat buffers. */
static void add_elements(struct shard_builder *b, const struct tensor_slot *t, size_t from,
                         size_t to, size_t offset)
{
    const struct tensor_slot *whole = layout_find(b->whole, t->id, t->layer);
    const struct param *param = &params[t->id];
    struct shard_run run = {(int)(whole - b->whole->tensors), from, to - from, offset};
    bool by_columns = param->tp && param->axes[1] == param->tp;
    /* With fewer key/value heads than slices, neighbors have the same one. */
    size_t slices_per_head = (size_t)b->at.num_slices * t->elements / whole->elements;
    if (param->tp == 'V') {
        add_vocabulary(b, whole, run);
        return;
    }
    if (param->tp && !by_columns) run.first += (size_t)b->at.slice / slices_per_head * t->elements;
    if (!by_columns || t->columns == whole->columns) {
        append(b, run);
        return;
    }
    size_t columns = (size_t)t->columns, all = (size_t)whole->columns;
    for (size_t i = from, n; i < to; i += n) { /* row by row */
        size_t row = i / columns, column = i % columns;
        n = columns - column < to - i ? columns - column : to - i;
        run.first = row * all + (size_t)b->at.slice * columns + column;
        run.count = n, run.at = offset + i - from;
        append(b, run);
    }
}

void shard_init_sliced(struct shard *p, const struct layout *l, const struct layout *whole,
                       struct shard_position at)
{
    size_t num_shards = (size_t)at.num_shards, capacity = (size_t)l->num_tensors;
    struct shard_builder b = {p, capacity, at, whole};
    *p = (struct shard){.runs = heap(capacity * sizeof *p->runs),
                        .elements = l->elements / num_shards};
    BUG_IF(at.slice >= at.num_slices);
    for (int i = 0; i < l->num_units; i++) {
        const struct unit *u = &l->units[i];
        size_t each = u->elements / num_shards, begin = u->offset + (size_t)at.shard * each;
        for (int k = u->first_tensor; k < u->first_tensor + u->num_tensors; k++) {
            const struct tensor_slot *t = &l->tensors[k];
            size_t from = t->offset, to = from + t->elements;
            if (from < begin) from = begin;
            if (to > begin + each) to = begin + each;
            if (from < to)
                add_elements(&b, t, from - t->offset, to - t->offset,
                             u->offset / num_shards + from - begin);
        }
    }
}

void shard_init(struct shard *p, const struct layout *l, int shard, int num_shards)
{
    shard_init_sliced(p, l, l, (struct shard_position){shard, num_shards, 0, 1});
}

size_t shard_equal_runs(const struct shard_run *p, size_t most)
{
    size_t n = 1;
    while (n < most && p[n].tensor == p->tensor && p[n].count == p->count &&
           p[n].at == p[n - 1].at + p->count && p[n].first > p[n - 1].first &&
           p[n].first - p[n - 1].first == p[1].first - p->first)
        n++;
    return n;
}

void shard_release(struct shard *p)
{
    free(p->runs);
    *p = (struct shard){0};
}
