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

/* Appends elements of the sliced tensor `t`. */
static void add_elements(struct shard_builder *b, const struct tensor_slot *t,
                         struct shard_run elements)
{
    const struct tensor_slot *whole = layout_find(b->whole, t->id, t->layer);
    const struct param *param = &params[t->id];
    struct shard_run run = elements;
    run.tensor = (int)(whole - b->whole->tensors);
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
    size_t from = elements.first, to = from + elements.count;
    for (size_t i = from, n; i < to; i += n) { /* row by row */
        size_t row = i / columns, column = i % columns;
        n = columns - column < to - i ? columns - column : to - i;
        run.first = row * all + (size_t)b->at.slice * columns + column;
        run.count = n, run.at = elements.at + i - from;
        append(b, run);
    }
}

struct shard_run shard_find(const struct layout *l, int tensor, int shard, int num_shards)
{
    const struct tensor_slot *t = &l->tensors[tensor];
    const struct unit *u = &l->units[layout_unit(l, t->id, t->layer)];
    size_t each = u->elements / (size_t)num_shards, begin = u->offset + (size_t)shard * each;
    size_t from = t->offset, to = from + t->elements;
    if (from < begin) from = begin;
    if (to > begin + each) to = begin + each;
    if (from >= to) return (struct shard_run){.tensor = tensor};
    return (struct shard_run){tensor, from - t->offset, to - from,
                              u->offset / (size_t)num_shards + from - begin};
}

void shard_init_sliced(struct shard *p, const struct layout *l, const struct layout *whole,
                       struct shard_position at)
{
    size_t num_shards = (size_t)at.num_shards, capacity = (size_t)l->num_tensors;
    struct shard_builder b = {p, capacity, at, whole};
    *p = (struct shard){.runs = heap(capacity * sizeof *p->runs),
                        .elements = l->elements / num_shards};
    BUG_IF(at.slice >= at.num_slices);
    for (int i = 0; i < l->num_tensors; i++) {
        struct shard_run run = shard_find(l, i, at.shard, at.num_shards);
        if (run.count) add_elements(&b, &l->tensors[i], run);
    }
}

void shard_init(struct shard *p, const struct layout *l, int shard, int num_shards)
{
    shard_init_sliced(p, l, l, (struct shard_position){shard, num_shards, 0, 1});
}

void shard_init_without(struct shard *p, const struct shard *of, const struct layout *whole,
                        uint32_t omitted)
{
    size_t gone = 0;
    *p = (struct shard){.runs = heap(of->count * sizeof *p->runs)};
    for (size_t i = 0; i < of->count; i++) {
        struct shard_run run = of->runs[i];
        run.at -= gone;
        if (param_set_has(omitted, whole->tensors[run.tensor].id))
            gone += run.count;
        else
            p->runs[p->count++] = run;
    }
    p->elements = of->elements - gone;
}

const struct shard_run *shard_find_run(const struct shard *p, int tensor, size_t element)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct shard_run *run = &p->runs[i];
        if (run->tensor == tensor && element >= run->first && element - run->first < run->count)
            return run;
    }
    BUG("the shard does not have this element");
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
