/* task_evaluator.h -- the log-likelihoods that a model gives to a task's requests.
 *
 * Rows     A causal model computes a request in one row.  A masked model has no left-to-right
 *          probabilities: its pseudo-log-likelihood (Salazar et al. 2020) is the sum, over the
 *          tokens of the continuation, of the log-probability of each with only that token masked,
 *          in a row per token.
 * Order    Rows are sorted by length and cut into batches, which are dealt to the readers in turn
 *          and padded to the shortest of a few lengths that fits, so batches do not depend on the
 *          number of ranks.
 * Ranks    Every rank has the same task and gets the scores of all requests. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tasks/task_result.h"
#include "train/evaluator.h"

/* Sizing pass: runs the forward pass of a batch of every length.  Calls evaluator_size. */
enum status task_evaluator_size(const struct evaluator *e, struct arena *step);

/* Scores all requests of the task, none of which may be longer than the evaluator's rows (BUG).
 * `mask` is the ID of the mask token of a masked model.  Stops early when a signal is pending on
 * any rank.  Collective. */
enum status task_evaluator_run(const struct evaluator *e, const struct task *t, int32_t mask,
                               struct arena *step, struct task_scores *s);
