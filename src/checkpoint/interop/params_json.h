/* params_json.h -- params.json beside Meta's weights, both ways.
 *
 * It leaves out what the weights say: the vocabulary (-1), the feed-forward width (a rule), whether
 * the head is the embedding: it is missing, or has the same numbers.
 * Rope     Of scaled frequencies it says only that they are (use_scaled_rope).  The factor is 8,
 *          Llama 3.1's; of a model whose head is the embedding 32, as Hugging Face has it for Llama
 *          3.2, the only ones that Meta published like that.  rope_scaling_factor goes before.
 *          Ours writes a number only where it is another than these; max_seq_len never, as Meta's
 *          program gives that itself and then does not take the file. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "checkpoint/interop/tensor_slices.h"

/* The shape of a model with these tensors, whose rows of q and k need not be in order.  MISSING: it
 * is not there.  DATA, CONFIG: a key is missing or wrong, or does not fit the tensors. */
enum status params_json_read(const char *path, const struct tensor_slices *p,
                             struct model_shape *shape);
void params_json_write(const struct model_shape *shape, struct text *json);
