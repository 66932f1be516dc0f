/* bad_records.h -- malformed records of the data that were skipped: data.on_bad_record = "skip".
 *
 * A record is what becomes a document: a line, a row, a chunk of text.  It is bad if reading it
 * returns STATUS_RECORD: text that is not UTF-8, JSON without the key, a token ID outside the
 * vocabulary, spike counts of uneven lengths, a document over the size limit.  Damage to what holds
 * many records, such as a page of a .parquet file or a .gz stream, is not a bad record.
 * Order    A skipped record is an empty document: it keeps its position, so what is read next does
 *          not depend on ranks, prefetching or restarts.
 * Memory   A list owns the reasons; paths are borrowed from the sources. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

struct bad_record {
    const char *source, *file; /* paths */
    const char *unit; /* of `at`: "line", "row", "document", "sequence"; or "offset", bytes */
    uint64_t at;
    const char *reason;
};

struct bad_records {
    struct bad_record *list;
    size_t count;
    uint64_t num_read, num_bad; /* records; the list may hold fewer than num_bad */
    bool is_repeat; /* of streams: what is read now was read before, and is not counted or listed */
    bool is_unlimited; /* accepts more than BAD_RECORDS_LISTED, but does not list them */
};
enum { BAD_RECORDS_LISTED = 1000 };

/* Adds a record, with a copy of its reason.  DATA: the list is full. */
enum status bad_records_add(struct bad_records *b, const struct bad_record *r);
/* Moves the list and the counts of `from` to the end of `to`. */
void bad_records_move(struct bad_records *to, struct bad_records *from);
void bad_records_clear(struct bad_records *b); /* the list, not the counts */
void bad_records_release(struct bad_records *b);

/* Appends the list as JSON lines; step < 0: lines without a step. */
void bad_records_write(const struct bad_records *b, int64_t step, struct text *out);

/* "3 of 900 records are bad and were skipped; WHERE".  NULL: names the last of the list. */
void bad_records_describe(const struct bad_records *b, const char *where, struct text *out);
/* Where a bad record ends the work: turns RECORD into DATA, with a message that names the setting
 * that would skip the record; returns any other status. */
enum status bad_records_stop(enum status st, const char *setting);
/* DATA: more than 10 records are bad, and more than this share of those read; 1: no limit. */
enum status bad_records_check(const struct bad_records *b, double limit, const char *where);
