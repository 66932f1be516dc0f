/* deep_check.h -- `check --deep`: reads all data of a run as training would. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/preflight.h"
#include "data/source_scan.h"

struct deep_check {
    bool has_run;
    uint64_t num_sources, num_sums; /* num_sums: pairs of token files with checksums */
    uint64_t num_read, num_bad;
};

/* Reads every byte of the training and validation data and logs the first bad records, with file
 * and line.  DATA: a file is damaged, or records are bad and data.on_bad_record = "stop", or they
 * are more than data.bad_record_limit.  MISSING: data is not on this machine. */
enum status deep_check(struct deep_check *d, const struct config *c, const struct preflight *p);

/* The progress of a scan: a log line every 10 s. */
struct scan_report {
    double begin_s, reported_s;
};
struct scan_report deep_check_begin_report(void);
/* A source_scan's `progress`; `context` is the report. */
void deep_check_report(void *context, const struct source_scan *s);
