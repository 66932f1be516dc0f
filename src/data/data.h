/* data.h -- from the sources of the configuration to batches of rows, in an order that is a pure
 * function of (seed, row number).
 *
 * Axes     B rows of a batch, T = seq_len tokens.
 * Order    Of data.order = "streams": row g of the run belongs to virtual stream g mod V.  A stream
 *          draws documents from the mixture, in windows that are shuffled, cuts them into rows, and
 *          depends on no other stream.  A loader that is share `share` of `num_shares` yields the
 *          rows g with g mod num_shares == share, so any number of loaders sees the same rows in
 *          the same order.  Of "megatron": row g is sample g of Megatron-LM's data set, and shares
 *          take blocks of `block` rows in turn, as its sampler does; documents end where sequences
 *          do.  With `once` it is one epoch of the part, from its first sample.
 * Memory   The loader owns its rings and windows; a batch is the caller's.
 * Resume   The cursor is the next row and a few integers a stream; it is that of the rows handed
 *          out, not of what the prefetching thread has read ahead. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "comm/comm.h"
#include "data/data_config.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows as the model takes them; arrays are the caller's, filled by loader_next. */
struct batch {
    int B, T;
    int32_t *ids_BT;            /* inputs */
    int32_t *labels_BT;         /* LABEL_IGNORED (-100) where there is no loss */
    int32_t *start_BT, *end_BT; /* bounds of each token's document within its row */
    int64_t valid;              /* labels that count */
    int64_t bytes; /* of text behind the labels that count, for bits per byte; 0: unknown */
};

struct loader_options {
    const struct data_config *data;
    const struct objective_config *objective;
    const struct tokenizer *tokenizer; /* NULL: every source is token ids */
    int vocab_size;                    /* ids must be below it; 0: the tokenizer's */
    int seq_len;
    int share, num_shares; /* 0, 1 alone */
    int rows_ahead;        /* rows a thread reads ahead; 0: none, and loader_next does the work */
    int block;             /* data.order = "megatron": rows a share computes at a time; 0: one */
    int64_t run_rows;      /* megatron: of all shares together, in the whole run */
    bool validation;       /* the held-out documents instead of the others */
    bool once;             /* one pass over every document (validation, eval): rows are the same
                              for any number of shares, each of which reads all of them */
    int64_t most_rows;     /* once: of all shares together; 0: all there are */
};

struct loader;

/* Finds the files, cuts them into streams and checks that each stream has documents.
 * MISSING, DATA, CONFIG: which source, and what is wrong. */
enum status loader_open(struct loader **out, const struct loader_options *options);
void loader_close(struct loader *l);

/* The next b->B rows; b->B and the arrays are the caller's.  With `once` a batch may be short:
 * *rows says how many are filled (0: the end); the rest has no valid label. */
enum status loader_next(struct loader *l, struct batch *b, int *rows);

/* Cursor as a JSON object, and back.  CONFIG: it is of other sources, streams or settings (which).
 * DATA: it is damaged. */
enum status loader_save(const struct loader *l, struct text *json);
enum status loader_load(struct loader *l, const struct json *cursor);

/* Before a cursor is saved that is to be of all shares: each loader knows its own streams' only.
 * Collective over the readers, of which rank r has share r of them all.  MEMORY, IO: of the comm.
 */
enum status loader_gather(struct loader *l, const struct comm *readers);

/* What it holds, about, where documents are of 16 KiB and .zst was packed with the usual window. */
int64_t loader_memory_bytes(const struct loader *l);
