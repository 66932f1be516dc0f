/* megatron_tensor.h -- Megatron-LM's tensors as tensors of our model.
 *
 * Axes     H query heads, G groups with one key/value head each, K size of a head, F width of the
 *          feed-forward layer.
 * Rows of linear_qkv are, for each group, its H/G query heads, its key and its value head; those of
 * linear_fc1 are the gate's F, then the other F.  The norm in front of either belongs to it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"

/* Where the optimizer has a tensor. */
enum megatron_source { MEGATRON_MODEL, MEGATRON_FP32, MEGATRON_EXP_AVG, MEGATRON_EXP_AVG_SQ };
/* The optimizer's key: "param", "exp_avg" or "exp_avg_sq". */
const char *megatron_tensor_key(enum megatron_source source);
/* The source of a key of `len` characters; MEGATRON_MODEL: none. */
enum megatron_source megatron_tensor_source(const char *key, size_t len);

/* Layers of a model are below this number. */
enum { MEGATRON_MAX_LAYERS = 4096 };

struct megatron_tensor {
    enum megatron_source source;
    const char *key;                  /* its name in the model, within the parsed name */
    const struct megatron_form *form; /* which of our tensors it has */
    int layer;                        /* -1: none, or all, in a leading axis: is_stacked */
    bool is_stacked;
    bool is_second_half; /* the other F rows of linear_fc1, stored apart (weight_v) */
};

/* Parses "decoder.layers.3.mlp.linear_fc2.weight", with or without the optimizer's prefixes, such
 * as optimizer.state.exp_avg; false: not a tensor of a Llama. */
bool megatron_tensor_parse(const char *name, struct megatron_tensor *out);
/* Whether it is a buffer or other state that training on does not need. */
bool megatron_tensor_is_ignored(const char *name);
/* Dimensions of the tensor, without a leading axis of layers. */
int megatron_tensor_dims(const struct megatron_tensor *n);

/* Whether it is linear_fc1, and its first row the gate's. */
bool megatron_tensor_has_halves(const struct megatron_tensor *n);

/* Layers, and the sizes that determine where fused tensors are split. */
struct megatron_sizes {
    int64_t L, H, G, K, F;
    int64_t V; /* rows of embedding and head to keep; others are padding; 0: all */
};
/* Rows of the whole tensor; 0: unknown. */
int64_t megatron_tensor_rows(const struct megatron_tensor *n, const struct megatron_sizes *z);

/* Adds a piece of the tensor, whose position counts rows of the whole tensor, to the tensors of
 * layer `layer`.  DATA: it exceeds the tensor, or its dtype or shape cannot be a model's. */
enum status megatron_tensor_add(struct tensor_slices *slices, const struct megatron_sizes *z,
                                const struct megatron_tensor *n, int layer,
                                const struct file_slice *piece);
/* Rows [from, from + count) of a piece that has them. */
struct torch_tensor megatron_tensor_part(const struct torch_tensor *t, int64_t from, int64_t count);
/* The first of our tensors that this one has. */
struct tensor_name megatron_tensor_first(const struct megatron_tensor *n, int layer);
