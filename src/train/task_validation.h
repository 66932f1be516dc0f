/* task_validation.h -- validation.tasks: evaluation tasks during training.  They are not part of
 * the training state: no bit of training depends on them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "metrics/metrics.h"
#include "tasks/task_list.h"
#include "train/trainer.h"

struct task_validation {
    struct task_list tasks; /* empty unless validation.enable */
    int32_t mask;           /* ID of the mask token of a masked model */
};

/* Reads the tasks' files, which inputs_fetch has fetched.  `log`: warns about requests that lose
 * their beginning.  CONFIG: no tokenizer.  Other errors: those of task_list_open. */
enum status task_validation_open(struct task_validation *v, const struct config *c,
                                 const struct tokenizer *tok, bool log);
void task_validation_close(struct task_validation *v);
/* Scores all tasks and reports the results; `metrics` is NULL except on one rank.  Returns early
 * when a signal is pending on any rank.  Collective. */
enum status task_validation_run(struct task_validation *v, struct trainer *t,
                                struct metrics *metrics);
