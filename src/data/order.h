/* order.h -- which tokens row g of the run consists of: the implementations of data.order.
 *
 * Streams  Row g belongs to stream g mod num_streams.  The rows of a stream must be requested in
 *          order; some may be left out.  The cursor of a stream is `cursor_ints` integers, its
 *          state after its last row. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/blend.h"
#include "data/stream.h"

struct loader_options;
struct order;

/* What else a saved position says. */
struct order_position {
    uint64_t next_row, num_skipped; /* rows before the next one that were skipped */
    int64_t vocab_size;
    const struct stream_sources *sources; /* NULL: those of the run */
};

struct order_kind {
    void (*close)(struct order *o);
    /* Changes the number of streams before a cursor is loaded; NULL: it is always the same.
     * CONFIG: a source has too few documents. */
    enum status (*set_streams)(struct order *o, uint64_t count);
    /* Reads row `number`. */
    enum status (*row)(struct order *o, uint64_t number, struct source_tokens *t,
                       struct token_row *row);
    void (*save)(const struct order *o, uint64_t stream, int64_t *cursor_ints);
    enum status (*load)(struct order *o, uint64_t stream, const int64_t *cursor_ints,
                        const struct order_position *at);
    /* Whether a run of Megatron-LM may have saved after that many samples; NULL: the rows are not
     * its samples.  `args`: of that run (megatron_args.h), or NULL.  CONFIG: not with these
     * settings. */
    enum status (*check_consumed)(const struct order *o, uint64_t samples, const struct json *args);
    /* Appends the settings that a cursor depends on, and with `all` those that only rows do, too:
     * cursors of older programs have one sum over these and the length and tokens of rows. */
    void (*settings)(const struct order *o, bool all, struct text *out);
    int64_t (*memory_bytes)(const struct order *o);
};

/* The first member of every implementation's state. */
struct order {
    const struct order_kind *kind;
    uint64_t num_streams;
    size_t cursor_ints;
    uint64_t block; /* consecutive rows that one reader takes */
    bool reads_on;  /* with rows of another length or other tokens, and with other sources */
};

struct order_setup {
    const struct loader_options *options;
    const struct source *sources; /* borrowed, as is: */
    const struct source_identity *identities;
    size_t num_sources;
    const struct source_tokens *tokens;
    bool masked; /* a row is seq_len tokens instead of seq_len + 1 */
};

/* The sequences [*begin, *end) of a source that data.order = "megatron" reads.  CONFIG: it has
 * none, or `split` is malformed.  UNSUPPORTED: more than 2^31. */
enum status order_megatron_range(const struct source *s, const char *split, enum blend_part part,
                                 uint64_t *begin, uint64_t *end);
/* DATA, CONFIG: the sources cannot be read in this order (the message says why). */
enum status order_streams_open(struct order **out, const struct order_setup *setup);
enum status order_megatron_open(struct order **out, const struct order_setup *setup);
