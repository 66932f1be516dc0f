// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_source.h"

#include <stdint.h>
#include <stdio.h>

static enum status read_flat(void *context, const struct shard_run *p, size_t first, size_t count,
                             const float **values)
{
    (void)count;
    *values = (const float *)context + p->at + (first - p->first);
    return STATUS_OK;
}

struct tensor_source tensor_source_flat(const float *flat)
{
    return (struct tensor_source){read_flat, (void *)(uintptr_t)flat};
}

/* Number of elements from `at` to the end of this tensor's part of the buffer, at most
 * TENSOR_SOURCE_ELEMENTS. */
static size_t count_following(const struct shard *s, size_t at)
{
    size_t low = 0, high = s->count, end = at;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->runs[middle].at + s->runs[middle].count > at)
            high = middle;
        else
            low = middle + 1;
    }
    for (size_t i = low; i < s->count && s->runs[i].tensor == s->runs[low].tensor; i++) {
        end = s->runs[i].at + s->runs[i].count;
        if (end - at >= TENSOR_SOURCE_ELEMENTS) return TENSOR_SOURCE_ELEMENTS;
    }
    return end - at;
}

static enum status read_stored(void *context, const struct shard_run *p, size_t first, size_t count,
                               const float **values)
{
    const struct stored_source *s = context;
    struct stored_window alone = {0}, *w = s->window ? s->window : &alone;
    size_t at = p->at + (first - p->first), n = count;
    if (w->of != s || at < w->at || at + count > w->at + w->count) {
        if (s->window) n = count_following(s->shard, at);
        w->of = NULL;
        TRY(store_read(&s->store, at, n, s->values));
        *w = (struct stored_window){s, at, n};
    }
    *values = s->values + (at - w->at);
    return STATUS_OK;
}

struct tensor_source tensor_source_stored(struct stored_source *s)
{
    return (struct tensor_source){read_stored, s};
}

static enum status read_moved(void *context, const struct shard_run *p, size_t first, size_t count,
                              const float **values)
{
    const struct moved_source *s = context;
    p = shard_find_run(s->shard, p->tensor, first);
    return s->from.read(s->from.context, p, first, count, values);
}

struct tensor_source tensor_source_moved(struct moved_source *s)
{
    return (struct tensor_source){read_moved, s};
}

static enum status read_checked(void *context, const struct shard_run *p, size_t first,
                                size_t count, const float **values)
{
    struct checked_source *s = context;
    TRY(s->from.read(s->from.context, p, first, count, values));
    size_t bad = value_check_find(s->kind, F32, *values, count);
    if (bad == count || s->is_bad) return STATUS_OK;
    s->is_bad = true;
    s->tensor = p->tensor, s->element = first + bad, s->value = (double)(*values)[bad];
    return STATUS_OK;
}

struct tensor_source tensor_source_checked(struct checked_source *s)
{
    return (struct tensor_source){read_checked, s};
}

enum status tensor_source_check(const struct checked_source *s)
{
    char rank[32];
    if (!s->is_bad) return STATUS_OK;
    snprintf(rank, sizeof rank, "rank %d", s->rank);
    return value_check_fail(STATUS_DIVERGED, rank,
                            &(struct bad_element){.kind = s->kind,
                                                  .tensor = &s->layout->tensors[s->tensor],
                                                  .element = s->element,
                                                  .value = s->value});
}
