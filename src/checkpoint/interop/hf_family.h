/* hf_family.h -- the model families of Hugging Face's config.json: which of them are settings of
 * the model here, and why others are not supported. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "model/model_shape.h"

#include <stdbool.h>

/* How config.json asks for sliding windows: not at all; by use_sliding_window or layer_types, which
 * are not supported; by sliding_window, 4096 without it; by sliding_window if it is set. */
enum hf_windows { HF_WINDOWS_NONE, HF_WINDOWS_FLAG, HF_WINDOWS_SIZE, HF_WINDOWS_OPTIONAL };

/* Which biases a model of the family has: none; always those of q, k and v; those of attention if
 * attention_bias is true; and those of the feed-forward layer if mlp_bias is. */
enum hf_biases { HF_BIASES_NONE, HF_BIASES_QKV, HF_BIASES_ATTENTION, HF_BIASES_BOTH };

/* What else a family has: Granite's multipliers, blocks without RoPE, norms behind attention and
 * feed-forward layer, or RoPE of a part of each head and fused matrices (hf_fused.h). */
enum hf_extra {
    HF_EXTRA_NONE,
    HF_EXTRA_MULTIPLIERS,
    HF_EXTRA_NO_ROPE,
    HF_EXTRA_POST_NORM,
    HF_EXTRA_PHI3
};

struct hf_family {
    const char *model_type, *architecture;
    bool qk_norm; /* this, the biases and the sliding window imply the family */
    enum hf_biases biases;
    int kv_heads;    /* of a config.json without num_key_value_heads; 0: as many as heads */
    int head_dim;    /* without head_dim; 0: hidden_size / heads */
    int max_context; /* without max_position_embeddings */
    enum hf_windows windows;
    enum hf_extra extra; /* implies the family, too */
    double rope_theta;   /* without rope_theta */
    bool is_tied;        /* without tie_word_embeddings */
    double norm_eps;     /* without rms_norm_eps */
};

/* The first family of the table whose class in Transformers computes this model, which has passed
 * model_shape_check. */
const struct hf_family *hf_family_of(const struct model_shape *s);

/* UNSUPPORTED: not a family of the table; the message says how it differs, if that is known. */
enum status hf_family_find(const char *model_type, const struct hf_family **family);
