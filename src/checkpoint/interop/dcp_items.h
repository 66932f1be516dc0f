/* dcp_items.h -- the entries of the state_dict that goes into a torch.distributed.checkpoint
 * directory: a model's tensors and, for a run, its AdamW, its lr_scheduler and its counters.
 *
 * Names and types are those that one generation of torchtitan loads (dcp_generation.h).  As there,
 * each weight is its own param_group; all have the same settings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/dcp_generation.h"
#include "checkpoint/interop/torch_model.h"

/* The program that loads the checkpoint. */
struct dcp_target {
    enum dcp_generation generation;
    int64_t seq_len; /* training.seq_len: rows of v0.1's RoPE table */
    int dp_size;     /* > 0: with an empty data position for each of its data-parallel ranks */
};

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
    int64_t moment_steps; /* of the optimizer's moments, for AdamW's bias correction */
    const char *train;    /* the trainer's part of state.json */
    struct dcp_adamw adamw;
};

enum dcp_item_kind {
    DCP_TENSOR,     /* of the model's layout */
    DCP_SCALAR,     /* a number stored as a 0-d tensor */
    DCP_ROPE_TABLE, /* cos + i sin of each position and pair of coordinates, complex64 */
    DCP_OBJECT,     /* a Python object */
};

struct dcp_item {
    char *name;     /* FQN; owned */
    bool is_nested; /* in two dicts, whose keys are the name before and after its first dot */
    enum dcp_item_kind kind;
    struct torch_tensor tensor;         /* without a name; all kinds but DCP_OBJECT */
    int index;                          /* of the model's layout */
    const struct tensor_source *source; /* borrowed from the model or the run */
    unsigned char number[4];            /* bytes of a DCP_SCALAR */
    const char *type;                   /* Python's name of a DCP_OBJECT's type */
    struct text pickle;                 /* of a DCP_OBJECT */
};

struct dcp_items {
    struct dcp_item *all; /* owned */
    size_t count, capacity;
};

/* `run` NULL: only the model. */
void dcp_items_make(struct dcp_items *items, const struct torch_model *m,
                    const struct dcp_target *target, const struct dcp_run *run);
void dcp_items_release(struct dcp_items *items);
