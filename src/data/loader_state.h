/* loader_state.h -- what a loader has open; internal to loader*.c. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/bad_records.h"
#include "data/batch.h"
#include "data/loader_options.h"
#include "data/order.h"
#include "data/provenance.h"
#include "data/row_ranges.h"
#include "data/row_split.h"
#include "data/source_positions.h"

#include <pthread.h>

/* An entry of the prefetch ring: one row, and its stream's cursor after the row. */
struct loader_row {
    uint64_t number;          /* of the row, over the whole run */
    struct token_row tokens;  /* as read */
    struct token_spans spans; /* of these, with options.lists_spans */
    struct batch row;         /* built from them, unless readers exchange rows; B = 1 */
    int64_t *cursor;
    bool empty;             /* a single pass has ended */
    struct bad_records bad; /* skipped while the row was read */
};

struct loader {
    struct loader_options options;
    struct source *sources;
    struct source_identity *identities; /* of the sources */
    struct source_positions retired;    /* sources that were read before */
    struct provenance
        provenance; /* not sampled for a single pass, whose position runs do not save */
    size_t num_sources;
    struct order *order;
    uint64_t seed;
    struct source_tokens tokens;
    bool masked;
    int32_t mask_id;
    int32_t eod_id;             /* data.eod_mask_loss: no loss where this is the input; -1: off */
    unsigned char *bytes_of_id; /* length of each ID's text; NULL without a tokenizer */
    int64_t *cursors;           /* of all streams, after the rows delivered */
    uint64_t first_row, first_position; /* of the row where this loader began */
    /* Positions count the rows that the run has read, without those that it skipped. */
    struct row_split split;
    uint64_t step_begin, next; /* of the last batch; of the next one */
    uint64_t next_read;        /* of the first position that this reader has not read */
    uint64_t num_taken;        /* rows that left the ring */
    int64_t *marked;           /* the cursors and counts of bad records at loader_mark */
    uint64_t next_marked, marked_read, marked_bad;
    struct bad_records bad; /* skipped in the rows delivered; counts those before first_row, too */
    int64_t bad_total[2]; /* its num_read and num_bad; after loader_gather_cursor of all readers */
    struct row_ranges skips;     /* not to be delivered; constant while rows are read */
    struct row_ranges passed;    /* before the position, for the cursor: not trained on, */
    struct row_ranges untrained; /* and those of skipped steps */
    struct loader_row received;  /* from another reader */
    unsigned char *exchange;     /* records of readers in an exchange; NULL before the first one */
    /* The prefetch ring: num_built - num_taken <= ring_size. */
    struct loader_row *ring;
    uint64_t ring_size, num_built;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running, stop;
    struct failure failure;
};

static inline bool loader_skips_bad(const struct loader *l)
{
    return l->options.data->on_bad_record == ON_BAD_RECORD_skip;
}

static inline size_t loader_num_cursor_ints(const struct loader *l)
{
    return (size_t)l->order->num_streams * l->order->cursor_ints;
}
