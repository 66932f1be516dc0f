/* mlflow_run.h -- a run in MLflow's file store, which `mlflow ui` and its Python client read.
 *
 * Files    In the dump folder, mlruns/<experiment>/<run>/: meta.yaml, params/KEY with a value of
 *          the configuration, tags/KEY, and metrics/KEY with a line "time value step" per logged
 *          step.  The experiment's ID is a hash of its name, so that stores of several runs can be
 *          copied together.
 * Names    MLflow allows letters, digits, "_", "-", ".", ":", " " and "/": "throughput(tps)"
 *          becomes throughput_tps, "mfu(%)" mfu_percent.
 * Resume   A resumed run or a rollback continues the same run; lines of later steps are removed.
 * Units    Times in milliseconds since the epoch.
 * Errors   As metrics.h: a line that cannot be written is written later.
 * Source   mlflow/store/tracking/file_store.py of MLflow 3.17. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "formats/event_file.h"
#include "metrics/step_metrics.h"

struct mlflow_run;
/* As MLflow's RunStatus. */
enum mlflow_status {
    MLFLOW_RUNNING = 1,
    MLFLOW_FINISHED = 3,
    MLFLOW_FAILED = 4,
    MLFLOW_KILLED = 5
};

/* Keeps lines up to last_step of an earlier start; of that step itself, no validation and no tasks
 * if validation is due.  IO: a folder or file cannot be written. */
enum status mlflow_run_open(struct mlflow_run **out, const struct metrics_options *o,
                            int64_t last_step);
void mlflow_run_log(struct mlflow_run *r, int64_t step, const struct event_scalar *s, int count);
/* Records that the run ended. */
void mlflow_run_end(struct mlflow_run *r, enum mlflow_status how);
void mlflow_run_close(struct mlflow_run *r); /* NULL is fine */
/* Appends a tag of TensorBoard as a name that MLflow allows. */
void mlflow_run_format_name(struct text *t, const char *tag);
