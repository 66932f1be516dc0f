/* nxdt_write.h -- writes a model for NxD Training's weight_init_only, file by file as its converter
 * does; see nxdt.h.
 *
 * Memory   A few megabytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/torch_model.h"

struct nxdt_target {
    int tp_size, pp_size, virtual_pp_size; /* 0: 1 */
    int kv_size_multiplier;                /* 0: 1; above 1 implies qkv_linear */
    bool qkv_linear;                       /* weight_q, weight_k, weight_v; else q_proj, ... */
    bool fuse_qkv;                         /* weight_qkv */
    bool coalesce_qkv;                     /* qkv_proj.weight; requires G = H */
    bool adjacent;                         /* trn2's order of heads, else trn1's */
    bool no_xser;                          /* all of a rank's tensors in its file */
};

/* CONFIG: the model cannot be split like this; the message says why. */
enum status nxdt_write_check(const struct nxdt_target *t, const struct model_shape *shape);
/* Writes model/ and the markers into a folder, `done` last. */
enum status nxdt_write(const struct torch_model *m, const struct nxdt_target *t,
                       const char *folder);
