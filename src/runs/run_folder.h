/* run_folder.h -- what a run left, or is leaving, in its dump folder: settings, metrics, log,
 * checkpoints, and whether it runs.
 *
 * The folder may be of another version, half written, or hostile: what cannot be read is empty and
 * named in `problems`, the rest can be used.  All text is printable (printable.h).  Reading changes
 * nothing there and does not disturb a run that is writing.
 * Units    Times are seconds since the Unix epoch. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "runs/run_log.h"
#include "runs/run_metrics.h"
#include "runs/run_settings.h"
#include "runs/run_state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct folder_checkpoint {
    int64_t step;
    double written_s; /* of its manifest; 0: it has none, and cannot be resumed from */
};

struct run_folder {
    char *path;           /* as given, for opening files */
    char *title, *name;   /* the path, and the folder's own name; printable */
    bool is_summary;      /* as passed to run_folder_open */
    struct text problems; /* a line each; empty: none */

    struct run_settings settings;
    struct run_metrics metrics;
    struct run_log log;
    struct folder_checkpoint *checkpoints; /* by step */
    size_t num_checkpoints;

    enum run_state state;
    const char *error;     /* the last error of a failed run, in `log`; or NULL */
    int64_t last_step;     /* training.steps; 0: unknown */
    double written_s;      /* when metrics.jsonl or log.txt was last written; 0: unknown */
    double settings_mtime; /* of the config.toml that `settings` is of */
};

/* Whether a folder looks like a run's: it has metrics.jsonl, or config.toml and log.txt. */
bool run_folder_is_run(const char *path);
/* MISSING: no such folder, or not a run's. */
enum status run_folder_check(const char *path);

/* Reads everything; with `is_summary` as in run_metrics.h.  Errors: those of run_folder_check. */
enum status run_folder_open(struct run_folder *r, const char *path, bool is_summary);
/* Reads what the run wrote since, at the time now_s. */
void run_folder_update(struct run_folder *r, double now_s);
void run_folder_close(struct run_folder *r);

/* Sum of the sizes of a checkpoint's files: reads its folder. */
uint64_t run_folder_checkpoint_bytes(const struct run_folder *r, int64_t step);
/* The number of ranks, from its throughputs; 0: unknown. */
int64_t run_folder_ranks(const struct run_folder *r);
/* Seconds to the last step, from the median of the last logged step times; NaN: unknown. */
double run_folder_eta_s(const struct run_folder *r);
