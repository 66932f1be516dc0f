/* loader.h -- the data loader: reads the configured sources and yields batches of token rows.  The
 * order of the rows is a pure function of (seed, row number).
 *
 * Axes     B rows of a batch (batch.h), T = seq_len tokens.
 * Order    data.order = "streams": row g of the run belongs to virtual stream g mod V.  A stream
 *          draws documents from the mixture, shuffles them in windows, packs them into rows, and
 *          is independent of all other streams.
 *          data.order = "megatron": row g is sample g of Megatron-LM's GPTDataset, and a document
 *          ends where a sequence ends.  `once`: a single epoch of the split, from its first sample.
 * Readers  A step is the next rows of the run, on any number of data-parallel readers.  They take
 *          rows in turn (row_split.h), with data.order = "megatron" blocks of `block` rows as
 *          Megatron's sampler does.  Stream v is read by reader v mod R; unless R divides V, rows
 *          travel to the readers that train on them.
 * Memory   The loader owns its prefetch ring and shuffle windows; the caller owns the batch.
 * Resume   The cursor (what a torch data loader calls its state_dict) is the number of the next row
 *          and a few integers per stream.  It describes the rows already delivered by loader_next,
 *          not those that the prefetch thread has read ahead. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "comm/comm.h"
#include "data/bad_records.h"
#include "data/batch.h"
#include "data/loader_options.h"
#include "data/row_ranges.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct loader;
struct source;
struct token_row;

/* Opens the files, partitions them into streams and checks that each stream has documents.
 * MISSING, DATA, CONFIG: the message names the source and the problem. */
enum status loader_open(struct loader **out, const struct loader_options *options);
void loader_close(struct loader *l);

/* Fills the batch with this reader's share of the next `step_rows` rows of the run.  *rows is the
 * number of rows filled; the others, which come last, have no valid label.  With `once` 0 marks the
 * end.  Collective over the readers if they exchange rows.  DATA, IO: a document is damaged, a file
 * was truncated or cannot be read; later calls fail likewise. */
enum status loader_next_step(struct loader *l, struct batch *b, uint64_t step_rows, int *rows);
/* The same for a step of b->B rows per reader. */
enum status loader_next(struct loader *l, struct batch *b, int *rows);

/* The next row of the run as tokens, valid until the next call, and its number: for a single reader
 * that calls neither of the above.  With lists_spans also its spans.  *row is NULL at the end of a
 * single pass.  Errors: as above. */
enum status loader_next_tokens(struct loader *l, const struct token_row **row, uint64_t *number);

/* Skips rows: the rows after them take their place, in every reader alike.  Rows before the
 * position stay as they are.  Call it before the first loader_next, after loader_load. */
void loader_skip(struct loader *l, struct row_interval rows);
/* Adds the rows that were skipped before and among the rows of the last step, and all of its rows
 * if loader_skip_step was called. */
void loader_list_skipped(const struct loader *l, struct row_ranges *out);
/* The number of the next row over all readers. */
uint64_t loader_position(const struct loader *l);
/* The number of the first row of the last step. */
uint64_t loader_step_row(const struct loader *l);
/* The place, in its reader's batch, of the i-th row of a step that the reader trains on. */
int loader_place(const struct loader *l, int i);
/* The number of the row at a place of a reader's last batch. */
uint64_t loader_delivered_row(const struct loader *l, int reader, int place);
/* Records in the cursor that rows before the position were skipped: their training was undone,
 * and they are not read again. */
void loader_record_skipped(struct loader *l, struct row_interval rows);

/* Records in the cursor that the last step did not train on its rows (guard.skip_steps). */
void loader_skip_step(struct loader *l);

/* The opened sources, in the order of the configuration. */
size_t loader_num_sources(const struct loader *l);
const struct source *loader_source(const struct loader *l, size_t i);
/* The latest epoch, from 0, in which a stream of this reader is in source i after the rows
 * delivered.  data.order = "megatron" shuffles epochs together: 0. */
uint64_t loader_epoch(const struct loader *l, size_t i);

/* With data.on_bad_record = "skip" the records skipped in the rows delivered: the list until the
 * caller clears it, and this reader's counts.  The first reader's counts include all readers' from
 * before the cursor it was loaded with, so the sum over readers is that of the run.  In a single
 * pass only the first reader has any. */
struct bad_records *loader_bad_records(struct loader *l);

/* Remembers the cursor, before a step that may fail. */
void loader_mark(struct loader *l);
/* Makes the cursor, with the counts of bad records, that of loader_mark again, to be saved.  Drops
 * the list of bad records.  No row can be read afterwards. */
void loader_restore_mark(struct loader *l);

/* Writes the cursor as a JSON object. */
void loader_save(const struct loader *l, struct json_writer *w);
/* Restores it before the first row is read.  A checkpoint of Megatron-LM has only the number of
 * samples consumed: with data.order = "megatron" they are the rows before the next one, whose
 * position is 0, as the sampler's; otherwise the data starts from the beginning.  CONFIG: it was
 * saved with other sources, streams or settings (the message names which).  DATA: it is damaged. */
enum status loader_load(struct loader *l, const struct json *cursor);

/* Reads the number and the position of its next row.  DATA: it is damaged. */
enum status loader_read_next(const struct json *cursor, enum data_order order, int64_t *next_row,
                             int64_t *position);

/* Completes the cursor before it is saved: each reader knows the state of its own streams only.
 * Collective over `readers`, in which rank r is reader r.  COMM: a rank failed. */
enum status loader_gather_cursor(struct loader *l, const struct comm *readers);

/* Estimate of the memory it holds, for documents of 16 KiB and .zst files compressed with the
 * default window size. */
int64_t loader_memory_bytes(const struct loader *l);
