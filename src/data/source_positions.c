// SPDX-License-Identifier: Apache-2.0
#include "data/source_positions.h"

#include <stdlib.h>
#include <string.h>

void source_positions_release(struct source_positions *r)
{
    while (r->count) source_positions_remove(r, r->count - 1);
    free(r->items);
    *r = (struct source_positions){0};
}

struct source_position *source_positions_add(struct source_positions *r, const char *label,
                                             uint64_t streams)
{
    r->items = heap_grow(r->items, r->count + 1, sizeof *r->items);
    struct source_position *s = &r->items[r->count++];
    *s = (struct source_position){.label = heap_strdup(label),
                                  .content = -1,
                                  .ints = heap(streams * PARTITION_INTS * sizeof *s->ints)};
    return s;
}

size_t source_positions_find(const struct source_positions *r, const char *label, int64_t content)
{
    size_t found = SIZE_MAX;
    for (size_t i = r->count; i-- > 0;) {
        const struct source_position *p = &r->items[i];
        if (p->is_read || strcmp(p->label, label) != 0) continue;
        if (found == SIZE_MAX || p->content == content || r->items[found].content != content)
            found = i;
    }
    return found;
}

void source_positions_remove(struct source_positions *r, size_t index)
{
    free(r->items[index].label), free(r->items[index].ints);
    memmove(r->items + index, r->items + index + 1, (--r->count - index) * sizeof *r->items);
}

void source_positions_write(const struct source_positions *r, uint64_t streams,
                            struct json_writer *w)
{
    if (!r->count) return;
    json_begin_array(w, "retired_sources", JSON_INLINE);
    for (size_t i = 0; i < r->count; i++) {
        const struct source_position *s = &r->items[i];
        json_newline(w, 0);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "label", s->label);
        json_write_int(w, "place", (int64_t)s->identity.place);
        json_write_int(w, "count", (int64_t)s->identity.count);
        if (s->content >= 0) json_write_int(w, "content", s->content);
        json_begin_array(w, "positions", JSON_COMPACT);
        for (uint64_t k = 0; k < streams * PARTITION_INTS; k++) json_write_int(w, NULL, s->ints[k]);
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
}

static enum status read_source(struct source_positions *r, const struct json *from,
                               uint64_t streams)
{
    int64_t place, count, content = -1;
    const struct json *positions = json_get(from, "positions"), *v = json_first(positions);
    const char *label;
    TRY(json_get_string(from, "label", &label));
    TRY(json_get_int(from, "place", 0, JSON_MAX_INT, &place));
    TRY(json_get_int(from, "count", 1, JSON_MAX_INT, &count));
    if (json_get(from, "content")) TRY(json_get_int(from, "content", 0, UINT32_MAX, &content));
    if (!json_is_array(positions) || json_count(positions) != streams * PARTITION_INTS)
        FAIL(DATA, "source %s, which is not read: expected positions of %llu streams", label,
             (unsigned long long)streams);
    struct source_position *s = source_positions_add(r, label, streams);
    s->identity = (struct source_identity){(uint64_t)place, (uint64_t)count};
    s->content = content;
    for (uint64_t k = 0; k < streams * PARTITION_INTS; k++, v = json_next(v))
        if (!json_as_int(v, 0, JSON_MAX_INT, &s->ints[k]))
            FAIL(DATA, "source %s, which is not read: a position is damaged", label);
    return STATUS_OK;
}

enum status source_positions_read(struct source_positions *r, const struct json *list,
                                  uint64_t streams)
{
    if (list && !json_is_array(list)) FAIL(DATA, "\"retired_sources\" must be a list");
    for (const struct json *v = json_first(list); v; v = json_next(v))
        TRY(read_source(r, v, streams));
    return STATUS_OK;
}
