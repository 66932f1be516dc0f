/* hf_rope.h -- RoPE and its scaling in config.json: rope_theta and rope_scaling, or, since
 * Transformers 5, rope_parameters. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "model/model_shape.h"

/* Writes members rope_theta, partial_rotary_factor, rope_scaling and rope_parameters. */
void hf_rope_write(struct json_writer *w, const struct model_shape *s);
/* What to write as max_position_embeddings, which is the original context of dynamic scaling. */
int hf_rope_context(const struct model_shape *s);
/* Sets rope_theta, which the caller has set to its default, partial_rotary_factor and scaling;
 * where max_context, which the caller has set, is the original context of dynamic scaling, raises
 * it by the factor.  DATA: a value of the wrong type, or old and new keys that contradict each
 * other.  UNSUPPORTED: another type of RoPE. */
enum status hf_rope_read(const struct json *root, struct model_shape *s);
