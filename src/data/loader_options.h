/* loader_options.h -- what a data loader reads, and as which of the data-parallel readers. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "data/data_config.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct loader_options {
    const struct data_config *data;
    const struct objective_config *objective;
    const struct tokenizer *tokenizer; /* NULL: all sources hold token IDs */
    int vocab_size;                    /* exclusive bound of the IDs; 0: the tokenizer's size */
    int seq_len;
    int reader, num_readers; /* this data-parallel reader and their number; 0, 1 for a single one */
    const struct comm *readers; /* these readers, by `reader`; NULL: they may not exchange rows */
    int prefetch_rows; /* rows that a thread prefetches; 0: loader_next reads them itself */
    int block;         /* data.order = "megatron": consecutive rows per reader; 0: one */
    int deal;          /* streams: a batch's rows are dealt in turn to this many microbatches of
                          `block` rows, so that other numbers of readers with fewer or more
                          microbatches see the same ones; 0, 1: they stay in order */
    int64_t run_rows;  /* megatron: rows of the whole run, over all readers */
    bool lists_spans;  /* note which documents each row consists of (loader_next_tokens) */
    bool validation;   /* read the held-out documents instead of the training documents */
    bool once;         /* one pass over every document (validation, eval).  The rows do not depend
                          on the number of readers; each reader scans all documents. */
    bool is_quiet;     /* log nothing: the same data were opened before, with other options */
    bool is_sizing;    /* only for loader_memory_bytes: no prefetch ring */
    int64_t max_rows;  /* once: limit over all readers together; 0: no limit */
};
