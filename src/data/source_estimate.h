/* source_estimate.h -- about how many documents and tokens a source has, from a small sample. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/source.h"

struct source_estimate {
    uint64_t max_bytes; /* set it first: to read; 0: 1 MiB */
    /* Results: */
    double documents;           /* records, those without tokens and bad ones included */
    double tokens_per_document; /* mean; both are NAN if no record can be read */
};

/* Reads about max_bytes, from places all over the source, or from the start of up to 64 compressed
 * files, and scales it to the source's positions, or to the bytes of the compressed files.  A
 * smaller source is counted.  Of .bin and .npy files both numbers are exact except for documents
 * without tokens.  Uses t's tokenizer, vocab_size, bos and eos.  A damaged file is a warning in the
 * log.  CONFIG: as source_scan_run. */
enum status source_estimate_run(struct source_estimate *e, const struct source *s,
                                const struct source_tokens *t);

/* The same for data.order = "megatron", of the training part of `split`: exact. */
enum status source_estimate_megatron(struct source_estimate *e, const struct source *s,
                                     const char *split);
