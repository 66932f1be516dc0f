/* prepare_output.h -- the files that prepare writes: PREFIX.bin, .idx and .sum, the list of bad
 * records, and the journal that an interrupted run resumes from.
 *
 * Order    Documents are appended in their order.  PREFIX.bin.part and PREFIX.idx.part get their
 *          names at the end: .bin, then .sum, and last the .idx, which marks a complete pair.
 * Sums     Checksums are of the IDs in memory, before they are written.  A resumed run reads
 *          PREFIX.bin.part and compares it with the journal's. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/bad_records.h"
#include "data/provenance.h"
#include "formats/megatron_sum.h"

struct prepare_stats {
    uint64_t documents, tokens;
    uint64_t text_bytes, text_total; /* read so far, and in total; total 0: unknown (compressed
                                        files, tables); an ID counts as 4 bytes */
    uint64_t text_resumed;           /* the part of text_bytes that an earlier run read */
    uint64_t records, bad_records;   /* documents read, and those of them that were skipped */
    int token_bytes;                 /* 2 for vocabularies of fewer than 65,500 IDs, else 4 */
};

struct prepare_output {
    /* Set by the caller: */
    const char *prefix; /* borrowed */
    size_t num_sources;
    bool force;              /* overwrite existing output, and do not resume */
    double bad_record_limit; /* the fraction of the records that may be bad */
    uint32_t settings; /* a fingerprint of those that determine the output, besides the data */
    struct provenance *provenance; /* of the data; borrowed */
    const struct option_list
        *accept_changed; /* despite which changes of them to resume; borrowed */
    struct prepare_stats done;
    /* How far writing has come: */
    size_t source;
    uint64_t position;
    /* Private: */
    bool in_batch;          /* documents were written that `position` does not include */
    struct bad_records bad; /* of the batch */
    char *bin, *bin_part, *idx, *idx_part, *journal, *bad_list;
    int bin_fd, idx_fd, bad_fd;
    struct megatron_sum bin_sum;
    uint32_t lengths_crc; /* of PREFIX.idx.part */
    uint64_t bad_bytes;   /* of the list of bad records */
    bool bad_failed;      /* the list cannot be written */
    double journal_s;     /* time of the journal's last write */
};

/* Encoded documents. */
struct prepare_documents {
    const void *ids; /* token_bytes each */
    size_t num_ids;
    const int32_t *lengths;
    size_t num_lengths;
    uint64_t text_bytes;
    struct bad_records *bad;
};

/* Opens the .part files and continues after the journal's documents, if it is of the same settings.
 * Call prepare_output_close even after a failure.  CONFIG: complete files exist, or another process
 * is writing them; the data are not those of the journal.  IO. */
enum status prepare_output_open(struct prepare_output *o);
void prepare_output_close(struct prepare_output *o);

/* Appends documents of a batch, and empties d->bad.  IO. */
enum status prepare_output_write(struct prepare_output *o, const struct prepare_documents *d);
/* Ends a batch: sets how far writing has come, and every few seconds updates the journal.  DATA:
 * bad_record_limit is exceeded.  IO. */
enum status prepare_output_commit(struct prepare_output *o, size_t source, uint64_t position);
/* Makes the complete batches durable and records them in the journal.  After a failure within a
 * batch it does nothing: the journal keeps the batches before. */
enum status prepare_output_sync(struct prepare_output *o);
/* After a failure: calls prepare_output_sync; if no document was written, deletes the .part files
 * and the journal instead, but not the journal of a .bin without its .idx. */
void prepare_output_fail(struct prepare_output *o);
/* Writes .idx and .sum and gives all files their names.  DATA: PREFIX.idx.part has
 * changed.  IO. */
enum status prepare_output_publish(struct prepare_output *o);
