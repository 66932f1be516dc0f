/* dcp_items.h -- what goes into a directory of torch.distributed.checkpoint: a model's tensors, and
 * beside them, where a run goes on, its AdamW, its schedule and its counts.
 *
 * Names and kinds are those that today's torchtitan asks for.  Of one group of weights, as it has
 * it: every weight has the same settings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/torch_model.h"

/* AdamW, as it will make the next step. */
struct dcp_adamw {
    double lr, peak_lr;
    double beta1, beta2, eps, weight_decay;
    bool fused, foreach; /* which of torch's implementations goes on */
};

/* Where a run was when it was saved. */
struct dcp_run {
    struct tensor_source exp_avg, exp_avg_sq;
    int64_t step, tokens_seen;
    const char *train; /* the trainer's part of state.json */
    struct dcp_adamw adamw;
};

/* A tensor of the model's kind, a number that is a tensor without dimensions, or an object of
 * Python. */
struct dcp_item {
    char *name; /* owned */
    int split;  /* its keys: what is before the name's first dot and what is behind it; or 0: one */
    bool is_tensor;
    struct torch_tensor tensor;         /* without a name */
    int index;                          /* of the model's; -1: `number` is the tensor */
    const struct tensor_source *source; /* borrowed from the model or the run */
    unsigned char number[8];
    struct text pickle; /* of an object */
};

struct dcp_items {
    struct dcp_item *all; /* owned */
    size_t count, room;
};

/* `run` NULL: the model alone. */
void dcp_items_make(struct dcp_items *items, const struct torch_model *m,
                    const struct dcp_run *run);
void dcp_items_release(struct dcp_items *items);
