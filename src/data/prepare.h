/* prepare.h -- tokenizes sources with all cores into one pair of Megatron-LM token files,
 * PREFIX.bin and PREFIX.idx.
 *
 * Order    Documents appear in the order of the sources, their files and lines, regardless of the
 *          threads.  A document has the IDs that training would get from the text; empty ones are
 *          skipped.  Sources of IDs are copied, after a check against the tokenizer's vocabulary.
 * Threads  Each thread reads the documents it encodes: pages of a .parquet file, record batches of
 *          an .arrow file.  Only a compressed file is read by one thread for all others.
 * Memory   The IDs of three batches of 4 MiB of text per thread; for compressed files their text as
 *          well.
 * Files    PREFIX.sum has checksums (formats/megatron_sum.h), PREFIX.bad_records the records
 *          that were skipped, if any.
 * Resume   PREFIX.prepare.json is a journal: up to which document PREFIX.bin.part and
 *          PREFIX.idx.part are complete.  The same request over the same files (provenance.h)
 *          resumes there and produces the same bytes.  Changed files are refused, other settings
 *          start over.  PREFIX.idx appears last. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/data_config.h"
#include "data/prepare_output.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct prepare_request {
    const struct source_config *sources;
    size_t num_sources;
    const struct tokenizer *tokenizer;
    const char *prefix;
    bool bos, eos;
    bool force;                        /* overwrite existing output, and do not resume */
    struct option_list accept_changed; /* files, patterns or "tokenizer": resume despite changes */
    bool skips_bad;                    /* skip bad records instead of stopping at the first one */
    double bad_record_limit;           /* the fraction of the records that may be bad */
    int threads;                       /* 0: all */
    void (*progress)(void *context,
                     const struct prepare_stats *so_far); /* after each batch; or NULL */
    void *context;
};

/* REQUEUE: a signal has arrived (signals.h), and what is done is in the journal.
 * CONFIG: the output exists, another process is writing it, or files have changed since the
 * interruption.  RECORD, DATA: a document is damaged or contains an ID that the tokenizer does not
 * have (the message says which).  IO. */
enum status prepare_token_files(const struct prepare_request *p, struct prepare_stats *done);
