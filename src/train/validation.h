/* validation.h -- the loss of held-out or other data, and the scores of tasks, during training. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/skipped_records.h"
#include "train/stop.h"
#include "train/task_validation.h"
#include "train/trainer.h"

/* All borrowed. */
struct validation {
    const struct config *config;
    struct trainer *trainer;
    const struct tokenizer *tokenizer; /* NULL: none */
    const struct data_config *data;    /* of training, for its held-out part */
    struct metrics *metrics;           /* NULL except on rank 0 */
    struct skipped_records *skipped;
    struct stop *stop;
    struct task_validation *tasks;
    double *loss; /* set if there is one */
};

/* Reads validation data until a row has a token to predict, as validation_run will.  On this rank
 * alone.  Errors: those of loader_open and loader_next; DATA: no token to predict. */
enum status validation_check(const struct config *c, const struct mesh *mesh,
                             const struct tokenizer *t, int vocab_size);

/* Sets `bytes` to about the memory of the loader that reads validation data; 0 without such data.
 * Errors: those of loader_open. */
enum status validation_data_bytes(const struct config *c, const struct mesh *mesh,
                                  const struct tokenizer *t, int vocab_size, size_t *bytes);

/* Computes and reports the loss, then the tasks.  REQUEUE: the run must stop, and the rest is not
 * reported.  DATA: no token to predict.  Also the errors of loader_next.  Collective. */
enum status validation_run(const struct validation *v);
