/* wandb_run.h -- a run in the offline format of Weights & Biases, which `wandb sync` uploads.
 *
 * Files    In the dump folder, wandb/offline-run-<date>_<time>-<id>/: run-<id>.wandb with
 *          everything that is uploaded, and files/config.yaml, files/wandb-metadata.json and, at
 *          the end of the run, files/wandb-summary.json for people and older programs.
 * Resume   W&B requires steps in ascending order, and a run has one lineage, so a resumed run or a
 *          rollback rewrites the .wandb file of the same ID without the later steps, then appends.
 *          The marker of an earlier upload (.synced) is removed; the next upload replaces what W&B
 *          has of this run.
 * Order    One row per step: what is logged later for the last step is merged into its row.
 * Units    _timestamp in seconds since the epoch, _runtime in seconds since the first start.
 * Errors   As metrics.h: a row that cannot be written is written later.
 * Source   wandb/proto/wandb_internal.proto of wandb 0.31. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "formats/event_file.h"
#include "metrics/step_metrics.h"

struct wandb_run;

/* Keeps rows up to last_step of an earlier start.  IO: a folder or file cannot be written.
 * CONFIG: WANDB_RUN_ID is not an ID. */
enum status wandb_run_open(struct wandb_run **out, const struct metrics_options *o,
                           int64_t last_step);
void wandb_run_log(struct wandb_run *w, int64_t step, const struct event_scalar *s, int count);
/* Appends the record that ends a run. */
void wandb_run_end(struct wandb_run *w, int exit_code);
void wandb_run_close(struct wandb_run *w); /* NULL is fine */
