/* hf_extra.h -- what Granite and SmolLM3 have in config.json besides a Llama's keys. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "checkpoint/interop/hf_family.h"
#include "model/model_shape.h"

/* Writes embedding_multiplier, attention_multiplier, residual_multiplier and logits_scaling, or
 * no_rope_layer_interval and no_rope_layers, if the family has them. */
void hf_extra_write(struct json_writer *w, const struct hf_family *f, const struct model_shape *s);
/* Reads them; L and K are set.  DATA: a value of the wrong type.  UNSUPPORTED: no_rope_layers that
 * are not every Nth layer. */
enum status hf_extra_read(const struct json *root, const struct hf_family *f,
                          struct model_shape *s);
