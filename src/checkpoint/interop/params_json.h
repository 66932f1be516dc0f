/* params_json.h -- reads and writes Meta's params.json.
 *
 * The file leaves out what the weights imply: vocabulary (-1), feed-forward width (a formula), and
 * whether the model is tied (the head is missing or equals the embedding).
 * Rope     Scaled RoPE is only a flag there (use_scaled_rope).  The factor is 8, as in Llama 3.1;
 *          for a tied model 32, as Hugging Face has it for Llama 3.2, the only tied models Meta
 *          published.  The key rope_scaling_factor takes precedence.  We write only parameters that
 *          differ from these, and never max_seq_len: Meta's code passes it itself and then rejects
 *          the file. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "checkpoint/interop/tensor_slices.h"

/* Reads the shape of a model with these tensors, whose q and k rows may be in any order.  MISSING:
 * the file does not exist.  DATA, CONFIG: a key is missing or wrong, or contradicts the tensors.
 * Where tensors are missing, their sizes are those of `model`; NULL: that is DATA. */
enum status params_json_read(const char *path, const struct tensor_slices *slices,
                             const struct model_shape *model, struct model_shape *shape);
void params_json_write(const struct model_shape *shape, struct text *json);
