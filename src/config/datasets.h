/* datasets.h -- resolves torchtitan's names of data sets to sources; internal to config/.
 *
 * A source of spike counts is also described by keys of gpt-neuro-arch: model.tokenizer_path (a
 * pickle of motifs), training.n_fixed and training.source_dataset. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/options.h"

/* Replaces training.dataset by data.sources if the configuration has neither [[data.source]] nor
 * training.dataset_path, and validation.dataset by validation.dataset_path and column if validation
 * needs them.  is_fork: the file uses the older fork's keys.
 * CONFIG: unknown name (the message lists the known ones); the name's sources do not match
 * model.vocab_size; validation.dataset is a mixture. */
enum status datasets_resolve(struct config *c, bool is_fork);

/* Appends the table of names, for config explain and docs/options.md. */
void datasets_explain(struct text *out);
void datasets_document(struct text *markdown);
