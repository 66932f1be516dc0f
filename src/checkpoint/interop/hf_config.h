/* hf_config.h -- reads and writes config.json of a Hugging Face Llama. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "model/model_shape.h"

/* `dtype` is the weights', such as "float32".  Negative token IDs are written as null. */
void hf_config_write(const struct model_shape *s, const char *dtype, int bos, int eos,
                     struct text *json);

/* Accepts old and new keys (rope_theta and rope_scaling, or rope_parameters, which has precedence).
 * Ignores the dtype, which the weights' files specify.  DATA: a key is missing or has the wrong
 * type.  UNSUPPORTED: not a Llama, or with biases, another activation or RoPE type.  CONFIG:
 * inconsistent sizes. */
enum status hf_config_read(const char *path, struct model_shape *s);
/* Reads the token IDs, of a list the first; -1: none. */
enum status hf_config_ids(const char *path, int *bos, int *eos);
