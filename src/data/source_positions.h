/* source_positions.h -- where a run is in each source, also in those that it does not read any more
 * (retired), so that one of them continues there if it comes back. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "data/stream.h"

struct source_position {
    char *label; /* data.source.name, or the path of a source without a name; owned */
    struct source_identity identity;
    int64_t content; /* sum over the files' content and what is selected of it; -1: unknown */
    bool is_read;    /* by a source of this run */
    int64_t *ints;   /* PARTITION_INTS of each stream; owned */
};
struct source_positions {
    struct source_position *items; /* owned */
    size_t count;
};

void source_positions_release(struct source_positions *r);
/* Appends a source at the start of `streams` streams, and returns it. */
struct source_position *source_positions_add(struct source_positions *r, const char *label,
                                             uint64_t streams);
/* The first of that label that is not read, if possible one of that content; SIZE_MAX: none. */
size_t source_positions_find(const struct source_positions *r, const char *label, int64_t content);
void source_positions_remove(struct source_positions *r, size_t index);

/* Writes them as the member "retired_sources", unless the list is empty. */
void source_positions_write(const struct source_positions *r, uint64_t streams,
                            struct json_writer *w);
/* Appends those of the member; NULL: nothing.  DATA: it is damaged. */
enum status source_positions_read(struct source_positions *r, const struct json *list,
                                  uint64_t streams);
