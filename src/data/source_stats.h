/* source_stats.h -- what a source holds: documents, tokens, their lengths, duplicates, text that
 * looks like special tokens, bad records.
 *
 * Tokens   As training reads them, with BOS and EOS where data.bos and data.eos insert them.
 * Memory   8 bytes per document, at most 512 MiB: beyond 2^26 documents duplicates are estimated
 *          from those whose hashes end in zero bits.
 * Order    The results do not depend on the number of threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/source_scan.h"

enum { SOURCE_STATS_BINS = 34, SOURCE_STATS_PLACES = 5 };

/* Where a document has a special token. */
struct special_place {
    uint64_t position; /* of the document in the source */
    size_t file;
    uint64_t at; /* source_document.at */
    int32_t id;  /* the first special token in it */
};

struct source_stats {
    struct source_scan scan; /* set its inputs first; it has bad records and damage */
    size_t max_hashes;       /* 0: 2^26 */
    /* Results: */
    uint64_t documents; /* without bad records */
    uint64_t tokens;
    uint64_t text_bytes; /* of the documents' texts; 0 if the source holds IDs */
    /* Documents by length: [0] without tokens, [b] from 2^(b-1) to 2^b - 1 tokens. */
    uint64_t lengths[SOURCE_STATS_BINS];
    uint64_t longest;    /* tokens */
    uint64_t duplicates; /* documents that equal another one before them; empty ones do not count */
    bool is_estimated;   /* duplicates */
    /* Documents whose text contains the text of a special token, or whose IDs contain one other
     * than a BOS in front and an EOS at the end. */
    uint64_t num_special;
    struct special_place places[SOURCE_STATS_PLACES]; /* the first of them */
    size_t num_places;
};

/* Errors: those of source_scan_run. */
enum status source_stats_run(struct source_stats *s);
/* The first and the last bin that have documents. */
void source_stats_bins(const struct source_stats *s, int *first, int *last);
void source_stats_release(struct source_stats *s);
