/* hf_config.h -- reads and writes config.json of Hugging Face, of the family that has the model's
 * settings (hf_family.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "model/model_shape.h"

/* What config.json says besides the model's dimensions. */
struct hf_usage {
    int bos, eos; /* token IDs; -1: none */
    /* Transformers since 5.2 attends in both directions if is_causal is false; older versions
     * ignore the key. */
    enum hf_is_causal { HF_CAUSAL_UNSET, HF_CAUSAL_TRUE, HF_CAUSAL_FALSE } is_causal;
    double mlm_probability; /* of a masked model (our key); 0: unset */
    bool is_diffusion;      /* masked_diffusion (our key): a masked diffusion model */
};

/* `dtype` is the weights', such as "float32".  Negative token IDs are written as null, unset keys
 * not at all. */
void hf_config_write(const struct model_shape *s, const char *dtype, const struct hf_usage *u,
                     struct text *json);

/* Accepts old and new keys (rope_theta and rope_scaling, or rope_parameters; both if they agree).
 * Ignores the dtype, which the weights' files specify.  DATA: a key is missing or has the wrong
 * type.  UNSUPPORTED: of another family (hf_family.h), with sliding windows of some layers, biases
 * that its family does not have, another activation or RoPE type, or quantized in a way that
 * hf_quantization.h does not list.  CONFIG: inconsistent sizes. */
enum status hf_config_read(const char *path, struct model_shape *s);
/* Reads the first of a list of token IDs.  DATA: is_causal or masked_diffusion is not a boolean,
 * or mlm_probability not a probability. */
enum status hf_config_read_usage(const char *path, struct hf_usage *u);
