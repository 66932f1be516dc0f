/* run.h -- a training run from its first step, or from where it stopped, to its last.
 *
 * Leaves in job.dump_folder: config.toml, log.txt, metrics.jsonl, tb/, checkpoint/.
 * Order    A checkpoint holds the state after a whole step; logging, validation and saving of a
 * step happen in that order, so a resumed run writes the lines the straight run writes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "data/loader.h"
#include "train/machine.h"

/* Path of the tokenizer the configuration names: data.tokenizer, else the older keys; "" if none.
 */
const char *run_tokenizer_path(const struct config *c);

/* The sources to read: [[data.source]], else training.dataset_path as one.  `one` is the caller's
 * storage for that; the result borrows from c and one. */
struct data_config run_data_config(const struct config *c, struct source_config *one);

/* How training reads `data`, which stays borrowed.  `tokenizer` NULL: the data are token ids. */
/* What the rank that stands at `mesh` reads. */
struct loader_options run_loader_options(const struct config *c, const struct mesh *mesh,
                                         const struct data_config *data,
                                         const struct tokenizer *tokenizer, int vocab_size);

/* REQUEUE: stopped by a signal, with a checkpoint written.  DIVERGED: see trainer_step.  Anything
 * that opening the tokenizer, the data, a checkpoint or the outputs can fail with. */
enum status run_train(const struct config *c, const struct machine *machine);
