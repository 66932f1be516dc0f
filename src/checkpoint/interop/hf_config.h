/* hf_config.h -- config.json of a Hugging Face Llama, both ways. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "model/model_shape.h"

/* `dtype`: of the weights beside it, "float32".  Ids below 0 are written as null. */
void hf_config_write(const struct model_shape *s, const char *dtype, int bos, int eos,
                     struct text *json);

/* Old and new spellings (rope_theta and rope_scaling, or rope_parameters, which goes first); the
 * weights say their dtype themselves.  DATA: a key is missing or has another type.  UNSUPPORTED:
 * not a Llama, biases, another activation or rope type; which.  CONFIG: sizes that do not fit. */
enum status hf_config_read(const char *path, struct model_shape *s);
/* Its token ids (of several the first); -1 where it has none. */
enum status hf_config_ids(const char *path, int *bos, int *eos);
