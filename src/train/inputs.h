/* inputs.h -- a run's inputs: its tokenizer and data, fetched from the Hub if needed, and how
 * training reads them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "config/config.h"
#include "data/loader.h"
#include "parallel/mesh.h"
#include "tokenizer/tokenizer.h"

/* Fetches the hf:// paths among a run's tokenizer and data.  Collective.  Errors: those of
 * hub_fetch. */
enum status inputs_fetch(const struct config *c, const struct comm *world);
/* The same for the tokenizer alone. */
enum status inputs_fetch_tokenizer(const struct config *c, const struct comm *world);

/* Path of the configured tokenizer: data.tokenizer, else the older options; "": none. */
const char *inputs_tokenizer_path(const struct config *c);
/* Opens the configured tokenizer, or if none is configured the one in the folder of
 * checkpoint.initial_load_path, unless all data are spike counts, or token IDs of a smaller
 * vocabulary; `log`: logs the latter.  *t NULL: neither exists.
 * Errors: those of tokenizer_open. */
enum status inputs_open_tokenizer(const struct config *c, bool log, struct tokenizer **t);

/* The data to read: [[data.source]], else training.dataset_path as a single source.  `one` is
 * storage for that; the result borrows from c and one. */
struct data_config inputs_data_config(const struct config *c, struct source_config *one);
/* [data], with the seed that it reads with; path: if not NULL, as a single source. */
struct data_config inputs_data_of_path(const struct config *c, const char *path, const char *column,
                                       struct source_config *one);
/* Appends what empty rows cost where the rows of a full step do not divide among the microbatches
 * of all ranks; nothing if they do. */
void inputs_describe_padding(const struct config *c, const struct mesh *mesh, struct text *out);

/* Skips the rows of guard.skip_rows that are not trained on yet; after loader_load. */
void inputs_skip_rows(const struct config *c, struct loader *l);
/* How the rank at `mesh` reads `data`, which stays borrowed, in training.  tokenizer NULL: the data
 * are token ids. */
struct loader_options inputs_loader_options(const struct config *c, const struct mesh *mesh,
                                            const struct data_config *data,
                                            const struct tokenizer *tokenizer, int vocab_size);
