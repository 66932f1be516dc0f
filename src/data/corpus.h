/* corpus.h -- every document of some sources, once and in order, as token IDs: for counting tokens
 * and n-grams, where rows are not needed.
 *
 * Order    That of the loader in a single pass, so the loader's labels are all these IDs except the
 *          very first one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/source.h"

struct document {
    const int32_t *ids; /* valid during the callback only */
    size_t count;
    size_t within;  /* how many of them are among the first `max_ids` IDs of the corpus */
    size_t neurons; /* spike counts: IDs of a bin without its separator; otherwise 0 */
};

struct corpus {
    const struct source_config *sources;
    size_t num_sources;
    const struct tokenizer *tokenizer; /* NULL: all sources hold IDs */
    int64_t vocab_size;                /* exclusive bound of the IDs */
    bool bos, eos;
    bool skips_bad; /* data.on_bad_record = "skip"; logs what it skips, unless */
    bool is_quiet;
    uint64_t max_ids;      /* stop before a document that begins after this many IDs; 0: read all */
    const bool *is_enough; /* stop before the next document once `take` has set it; NULL: do not */
};

/* Calls `take` for each document.  MISSING, DATA, CONFIG: as loader_open and loader_next; RECORD: a
 * bad record, unless skips_bad; or the status that `take` returns. */
enum status corpus_each(const struct corpus *d,
                        enum status (*take)(void *context, const struct document *one),
                        void *context);

/* Reads the first non-empty session of spike counts at or after `row`: its IDs and its number of
 * neurons.  CONFIG: the source holds no spike counts, or no such row. */
enum status corpus_read_session(const struct source_config *source, uint64_t row,
                                struct token_list *ids, size_t *neurons);

/* Whether the source holds spike counts. */
enum status corpus_is_spike_counts(const struct source_config *source, bool *are);
