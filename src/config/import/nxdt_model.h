/* nxdt_model.h -- the rules of the model in NxD Training's YAML. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/import.h"

/* `hf`: model_source is hf, whose sizes are those of config.json; else those of the YAML, with the
 * defaults of NxD Training's Megatron model.  CONFIG: unknown sizes without config.json; as
 * import_set. */
enum status nxdt_model_set(struct import *im, bool hf);
/* Sets the sliding window; training.seq_len is set.  CONFIG: as import_set. */
enum status nxdt_model_set_window(struct import *im, bool hf);
