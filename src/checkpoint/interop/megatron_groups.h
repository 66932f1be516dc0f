/* megatron_groups.h -- the state of Megatron-LM's optimizers that are not distributed, as
 * --ckpt-format torch saves it beside a rank's model.
 *
 * It is keyed by number: tensors state.N.exp_avg, and param_groups with lists of numbers N.
 * Float16Optimizer has both in "optimizer", and beside that fp32_from_fp16_params, a list of
 * float32 copies for each group.  Norms and biases are in a group with wd_mult 0, matrices in
 * another, each in the order of the model.
 * Source   megatron-core's optimizer/__init__.py (_get_param_groups) and optimizer.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/megatron_shard.h"
#include "formats/torch.h"

struct megatron_groups {
    const char *path; /* the archive's */
    struct torch_tensors tensors;
    const struct file_map *map;
    const struct pickle_value *list; /* param_groups; NULL: none */
    const char *nested;              /* "optimizer." or "" */
};

/* Whether a rank's file has an optimizer; of a distributed one it has only the groups. */
bool megatron_groups_exist(const struct torch_archive *a);
bool megatron_groups_have_copies(const struct torch_archive *a);
/* Lists the optimizer's tensors; keep archive and map open. */
enum status megatron_groups_open(struct megatron_groups *g, const struct torch_archive *a,
                                 const struct file_map *map);
void megatron_groups_release(struct megatron_groups *g);
/* Adds to `slices` what it has for all parameters of the rank, in the order of its model.
 * UNSUPPORTED: the groups do not have these parameters, with these shapes. */
enum status megatron_groups_add(const struct megatron_groups *g,
                                const struct megatron_shards *model, enum megatron_source source,
                                struct tensor_slices *slices, const struct megatron_sizes *z);
