/* metrics.h -- the metrics of a run: console lines, metrics.jsonl, and what
 * TensorBoard, W&B and MLflow read.
 *
 * Units    metrics.jsonl: loss in nats/token; step_seconds and data_seconds for one step; mfu as a
 *          fraction of the peak; tokens_per_second over all ranks, with padding; padding as a
 *          fraction of the tokens, without the key if it is 0.  Values that are not finite, and mfu
 *          if the peak is unknown, are null.  TensorBoard has torchtitan's tags and units:
 *          throughput(tps) per rank, mfu(%); or NxD Training's, with steps from 0 and rows per
 *          second.
 * Files    A resumed run appends to the same metrics.jsonl, after removing the lines of later
 *          steps; without checkpoints, a start moves an earlier one's lines to metrics.N.jsonl.  In
 *          the TensorBoard folder each start writes a new file, whose SessionLog START
 *          event makes TensorBoard drop later steps of earlier files.  wandb_run.h and
 *          mlflow_run.h describe the others, which get TensorBoard's tags and steps.
 * Errors   A record that cannot be written does not end the run: a warning reports it, and it is
 *          written with a later one (append_file.h).  Where lines are lost, {"step":S,"gap":N}
 *          counts those that are missing, up to step S.
 * Ranks    Only one rank of a run opens a struct metrics; its inputs are already reduced. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "metrics/memory.h"
#include "metrics/step_metrics.h"
#include "tasks/task_result.h"

#include <stdbool.h>
#include <stdint.h>

struct metrics;

/* IO: a folder or file cannot be created, or metrics.jsonl not be truncated. */
enum status metrics_open(struct metrics **out, const struct metrics_options *o);
void metrics_close(struct metrics *m); /* NULL is fine */
/* Tells W&B and MLflow that the run ended, and how: OK, REQUEUE (stopped) or a failure. */
void metrics_end(struct metrics *m, enum status how);
/* Whether parameter_norm is reported, so that the caller must compute it. */
bool metrics_needs_parameter_norm(const struct metrics_config *c);
/* Prints the dialect's summary, if it has one, at the end of a run. */
void metrics_summarize(struct metrics *m);
/* Reports a step or a validation to the console, metrics.jsonl and TensorBoard, each flushed.  Does
 * not allocate unless writing fails. */
void metrics_step(struct metrics *m, const struct step_metrics *s);
void metrics_validation(struct metrics *m, int64_t step, double loss, double seconds,
                        int64_t tokens, int64_t memory_bytes);
/* Adds a line to metrics.jsonl: {"step":40,"rollback_from":47,"rows_skipped":[320,375],...}. */
void metrics_rollback(struct metrics *m, const struct rollback_metrics *r);
/* Adds a line: {"step":40,"rows_skipped":[320,327]}. */
void metrics_skipped_rows(struct metrics *m, int64_t step, int64_t first_row, int64_t last_row);
/* Reports the scores of an evaluation task. */
void metrics_task(struct metrics *m, int64_t step, const struct task *t,
                  const struct task_result *r);
