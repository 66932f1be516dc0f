/* skipped_records.h -- the bad records that a run has skipped (data/bad_records.h): listed in
 * DUMP/bad_records.jsonl, reported, and limited.
 *
 * File     A line for each record, in the step whose rows come after it.  Each reading rank appends
 *          its lines in one write.  A resumed run removes the lines of the steps that it repeats; a
 *          rollback keeps those of the rows that it skips.  Records of validation data are listed
 *          by the first validation only.
 * Errors   A file that cannot be written is a warning; the lines are written later, if possible. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/append_file.h"
#include "comm/comm.h"
#include "config/config.h"
#include "data/loader.h"

struct skipped_records {
    const struct config *config; /* borrowed; NULL: not opened */
    struct append_file file;
    int64_t num_reported, num_reported_validation;
    bool has_listed_validation;
};

/* `removes`: removes the lines after this step; on one rank, before any other writes.  IO. */
enum status skipped_records_open(struct skipped_records *s, const struct config *c, int64_t step,
                                 bool removes);
void skipped_records_close(struct skipped_records *s);
/* Makes lines after this step, to which the run went back, lines of the step that follows: its rows
 * come after theirs now.  On one rank, while no other writes.  IO. */
enum status skipped_records_roll_back(struct skipped_records *s, int64_t step);

/* Lists the records that were skipped in a step's rows; l may be NULL. */
void skipped_records_list(struct skipped_records *s, struct loader *l, int64_t step);
/* Collective over the run.  Logs the number of skipped records on rank 0 if it has changed.  DATA,
 * on every rank: data.bad_record_limit is exceeded. */
enum status skipped_records_check(struct skipped_records *s, struct loader *l,
                                  const struct comm *world);
/* Both, for the data of a validation. */
enum status skipped_records_validated(struct skipped_records *s, struct loader *l, int64_t step,
                                      const struct comm *world);
