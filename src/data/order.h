/* order.h -- which tokens row g of the run holds: the kinds of data.order, for the loader.
 *
 * Lanes    Row g belongs to lane g mod lanes.  The rows of a lane are asked for in their order; its
 *          cursor is `ints` integers, those after the row that came last. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/data.h"
#include "data/source.h"

struct order;

struct order_kind {
    void (*close)(struct order *o);
    /* Row `number`: `need` tokens, fewer only where a single pass ends; begins[i] is set where
     * token i begins a document. */
    enum status (*row)(struct order *o, uint64_t number, struct source_tokens *t, int need,
                       int32_t *ids, unsigned char *begins, int *filled);
    void (*save)(const struct order *o, uint64_t lane, int64_t *ints);
    enum status (*load)(struct order *o, uint64_t lane, const int64_t *ints, int64_t vocab_size);
    void (*settings)(const struct order *o, struct text *out); /* that a cursor depends on */
    int64_t (*memory_bytes)(const struct order *o);
};

/* What every kind's own state begins with. */
struct order {
    const struct order_kind *kind;
    uint64_t lanes;
    size_t ints;
    uint64_t block; /* rows in a row that one share reads */
};

struct order_setup {
    const struct loader_options *options;
    const struct source *sources; /* borrowed */
    size_t num_sources;
    const struct source_tokens *tokens;
    bool masked; /* a row is seq_len tokens, else one more */
};

/* DATA, CONFIG: the sources cannot be read in this order, and why. */
enum status order_streams_open(struct order **out, const struct order_setup *setup);
enum status order_megatron_open(struct order **out, const struct order_setup *setup);
