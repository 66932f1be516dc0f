/* dcp_items.h -- the entries of the state_dict that goes into a torch.distributed.checkpoint
 * directory: a model's tensors and, for a run, its AdamW, its lr_scheduler and its counters.
 *
 * Names and types are those that current torchtitan loads.  As there, each weight is its own
 * param_group; all have the same settings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/torch_model.h"

/* AdamW as configured for the next step. */
struct dcp_adamw {
    double lr, peak_lr;
    double beta1, beta2, eps, weight_decay;
    bool fused, foreach; /* torch implementation to resume with */
};

/* The training state to save. */
struct dcp_run {
    struct tensor_source exp_avg, exp_avg_sq;
    int64_t step, tokens_seen;
    const char *train; /* the trainer's part of state.json */
    struct dcp_adamw adamw;
};

/* A tensor of the model's layout, a scalar stored as a 0-d tensor, or a Python object. */
struct dcp_item {
    char *name; /* FQN; owned */
    int split;  /* 1: nested in two dicts, whose keys are the name before and after its first dot;
                 * 0: one key */
    bool is_tensor;
    struct torch_tensor tensor;         /* without a name */
    int index;                          /* of the model's layout; -1: a scalar in `number` */
    const struct tensor_source *source; /* borrowed from the model or the run */
    unsigned char number[8];
    struct text pickle; /* of a Python object */
};

struct dcp_items {
    struct dcp_item *all; /* owned */
    size_t count, capacity;
};

/* `run` NULL: only the model. */
void dcp_items_make(struct dcp_items *items, const struct torch_model *m,
                    const struct dcp_run *run);
void dcp_items_release(struct dcp_items *items);
