/* objective.h -- the objective that a model was trained for, which decides whether attention is
 * causal.
 *
 * A key of [objective] comes from the command line, else from the run's config.toml, else from the
 * files beside the weights: is_causal and mlm_probability in config.json, mask_token in
 * tokenizer_config.json.  Without any of these, as with Meta's params.json alone, a model is
 * causal. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

/* Completes c->objective from the folder's files.  If it is not causal, or there is no config.json
 * or config.toml to say so, appends to `text` the objective and what decided it, such as
 * "masked (config.json: is_causal = false)".  `config_json` NULL: the folder's.
 * DATA: a file is malformed. */
enum status objective_resolve(struct config *c, const char *folder, const char *config_json,
                              struct text *text);
