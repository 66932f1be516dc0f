/* documents.h -- the documents of sources in turn, once, as token ids: for what counts tokens and
 * needs no rows.
 *
 * Order    As a single pass of the loader has them, so that its labels are all these ids but the
 *          very first. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/source.h"

struct document {
    const int32_t *ids; /* the callee's only while it runs */
    size_t count;
    size_t within;  /* those of them that are among the first `most` of all */
    size_t neurons; /* of spike counts: ids of a bin, but for its mark; else 0 */
};

struct documents {
    const struct source_config *sources;
    size_t num_sources;
    const struct tokenizer *tokenizer; /* NULL: all sources hold ids */
    int64_t vocab_size;                /* ids must be below it */
    bool bos, eos;
    uint64_t most; /* no document that begins behind so many ids; 0: all */
};

/* MISSING, DATA, CONFIG: as loader_open and loader_next; or what `take` fails with. */
enum status documents_each(const struct documents *d,
                           enum status (*take)(void *context, const struct document *one),
                           void *context);

/* Ids and neurons of the first session of spike counts from this row on.  CONFIG: there are none in
 * it, or not so many rows. */
enum status documents_session(const struct source_config *source, uint64_t row,
                              struct token_list *ids, size_t *neurons);

/* Is it a file, or files, of spike counts? */
enum status documents_are_spikes(const struct source_config *source, bool *are);
