/* tensor_name.h -- names of tensors in checkpoints: torchtitan's and Meta's, Hugging Face's, and
 * those of the optimizer's moments.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/layout.h"

#include <stdbool.h>

enum tensor_kind { TENSOR_WEIGHT, TENSOR_EXP_AVG, TENSOR_EXP_AVG_SQ };

/* Which tensor of the model or its optimizer a name denotes. */
struct tensor_name {
    enum param_id id;
    int layer;
    enum tensor_kind kind;
};

/* The suffix of a moment's name: "", ".exp_avg", ".exp_avg_sq". */
const char *tensor_name_suffix(enum tensor_kind kind);
/* The kind that a name's suffix denotes. */
enum tensor_kind tensor_name_kind(const char *name);

/* The name without what training scripts wrap a model or its modules in: a key "state_dict" or
 * "model_state_dict" in front, _orig_mod (torch.compile), module (DDP), _checkpoint_wrapped_module,
 * _fsdp_wrapped_module; heap.  The functions that parse names skip these, too. */
char *tensor_name_unwrap(const char *name);
/* Parses "model.layers.3.attention.wq.weight", "optimizer.state.norm.weight.exp_avg"; false: not a
 * tensor of a Llama. */
bool tensor_name_parse(const char *name, struct tensor_name *out);
/* Whether the name belongs to other training state, or to a buffer that the configuration
 * determines. */
bool tensor_name_is_ignored(const char *name);
/* The same for Hugging Face's names; weights only. */
bool tensor_name_parse_hf(const char *name, struct tensor_name *out);
/* The first parameter with the same Hugging Face name, whose ID tensor_name_parse_hf gives: models
 * have different norms under one name (model.post_norm). */
enum param_id tensor_name_hf_id(enum param_id id);
bool tensor_name_is_ignored_hf(const char *name);
/* Matches a name against a pattern whose %d is the layer; *layer is -1 without %d. */
bool tensor_name_matches(const char *form, const char *name, int *layer);
/* Current torchtitan's name of the tensor with this name in llama.params; heap. */
char *tensor_name_torchtitan(const char *name);
