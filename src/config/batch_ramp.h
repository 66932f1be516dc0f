/* batch_ramp.h -- the rows of each step of a run whose batch grows: training.batch_ramp.
 *
 * A step that begins after `done` rows of the run has
 *     global                                             rows if done > samples, otherwise
 *     start + floor(done / (samples / n)) * increment,   with n = (global - start) / increment.
 * Divisions are in double precision, as in Python, so that steps grow exactly where Megatron-LM's
 * do: RampupBatchsizeNumMicroBatchesCalculator of ROCm's 2b855baf.  Rows of a step depend on the
 * rows done alone, so a resumed run continues the ramp whatever its earlier steps were. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/run_config.h"

/* increment 0: every step has `global` rows. */
struct batch_ramp {
    int64_t global, start, increment, samples;
};

enum { BATCH_RAMP_MAX_SIZES = 4096 };

/* CONFIG: training.batch_ramp is not a ramp to training.global_batch_size. */
enum status batch_ramp_check(const struct training_config *c);
/* The ramp of a checked configuration; `global`: rows of a full step. */
struct batch_ramp batch_ramp_of(const struct training_config *c, int64_t global);

/* Rows of the step that begins after `done` rows. */
int64_t batch_ramp_rows(const struct batch_ramp *r, int64_t done);
/* Rows done before the first step of `global` rows, if a step began after every row. */
int64_t batch_ramp_full(const struct batch_ramp *r);

/* Rows done `steps` steps after `done` rows were; INT64_MAX if they are more. */
int64_t batch_ramp_advance(const struct batch_ramp *r, int64_t done, int64_t steps);
/* Steps from when `done` rows were done until at least `rows` are. */
int64_t batch_ramp_steps_to(const struct batch_ramp *r, int64_t done, int64_t rows);
/* Steps of a run of Megatron-LM with --train-samples: in the ramp a step that begins within the
 * samples counts, after it only one that also ends within them. */
int64_t batch_ramp_steps_of_samples(const struct batch_ramp *r, int64_t samples);

/* Appends "16 to 1024 rows per step in 126 increments over 300000 rows". */
void batch_ramp_describe(const struct batch_ramp *r, struct text *out);
