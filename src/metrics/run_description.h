/* run_description.h -- what W&B and MLflow show of a run besides its metrics: name and
 * configuration.  */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "base/toml.h"

#include <stddef.h>

/* The environment variable's value, or `otherwise` where it is not set or is empty. */
const char *run_description_env(const char *variable, const char *otherwise);
/* Appends the name of the last folder of the path. */
void run_description_name(struct text *t, const char *dump_folder);
/* Appends `digits` random letters and digits of `alphabet`; for IDs, not for training. */
void run_description_random(struct text *t, const char *alphabet, int digits);
/* Parses the effective configuration; NULL: it was not given. */
struct toml *run_description_config(const char *config_toml);
/* Appends the value as JSON. */
void run_description_json(struct text *t, const struct toml *value);
