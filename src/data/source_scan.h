/* source_scan.h -- reads all of a source as training would, and collects what training would not
 * accept.
 *
 * Threads  Each thread reads parts of the source; results are in the order of the source.
 * Memory   Bad records point to the source's paths: release the scan before closing the source. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/source.h"

struct source_scan {
    const struct source *source;       /* borrowed */
    const struct tokenizer *tokenizer; /* NULL: the source holds token IDs */
    int64_t vocab_size;
    bool bos, eos; /* as data.bos and data.eos */
    /* Read about this many, from places all over the source, or from the start of each compressed
     * file; 0: all. */
    uint64_t max_bytes;
    /* With max_bytes: stop after these, however long the documents are, and visit the places in an
     * order that spreads what is read.  Requires threads = 1. */
    bool is_quick;
    int threads;                                                       /* 0: all */
    void (*progress)(void *context, const struct source_scan *so_far); /* or NULL */
    void *context;
    /* Called for each document that is not bad, by several threads at once; NULL: checksums are
     * compared instead. */
    enum status (*take)(void *taker, const struct source_document *d, struct source_tokens *t,
                        const struct token_list *ids);
    void *taker;
    /* Results: */
    uint64_t bytes;         /* of text; an ID counts as 4 bytes */
    struct bad_records bad; /* and the number of records */
    /* What these records take up: positions; of a compressed source about how many bytes of the
     * files. */
    uint64_t extent;
    bool is_whole;      /* all records were read */
    struct text damage; /* lines: checksums that differ, and errors after which no more records
                               of a part can be read */
    size_t num_sums;    /* pairs of .bin and .idx whose PREFIX.sum was compared */
};

/* Fills in the results.  CONFIG: the source cannot be read with this tokenizer. */
enum status source_scan_run(struct source_scan *s);
void source_scan_release(struct source_scan *s);
