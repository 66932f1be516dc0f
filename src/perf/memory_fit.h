/* memory_fit.h -- options with which a run needs less memory on the same ranks, what each costs,
 * and the smallest sets of them with which it fits: `plan --fit`.  They keep the rows of a step and
 * the degrees of tensor, context and pipeline parallelism; layout_search.h varies those. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "perf/layout_cost.h"

/* What an option may change in the results of a run, besides the time: nothing; the order in which
 * the same numbers are added; how they are rounded. */
#define NUMERICS_LIST(X)                                                                           \
    X(same_bits, "same bits")                                                                      \
    X(other_order, "other order of sums")                                                          \
    X(other_rounding, "other rounding")

enum numerics {
#define X(name, text) NUMERICS_##name,
    NUMERICS_LIST(X)
#undef X
};
const char *memory_fit_numerics_name(enum numerics n);
const char *memory_fit_numerics_text(enum numerics n);

/* name, knob, settings, how the configuration is changed, numerics, what it costs.  Rows with the
 * same knob are alternatives; a row with an option that a run has already has no effect. */
#define MEMORY_OPTION_LIST(X)                                                                      \
    X(selective, recompute, "activation_checkpoint.mode=selective",                                \
      c->activation_checkpoint.mode = ACTIVATION_CHECKPOINT_selective, same_bits,                  \
      "recomputes norms and SwiGLU in backward")                                                   \
    X(full, recompute, "activation_checkpoint.mode=full",                                          \
      c->activation_checkpoint.mode = ACTIVATION_CHECKPOINT_full, same_bits,                       \
      "recomputes whole blocks in backward: about a third more GEMMs")                             \
    X(reshard, reshard, "parallelism.fsdp_reshard_after_forward=always",                           \
      c->parallelism.fsdp_reshard_after_forward = FSDP_RESHARD_always, same_bits,                  \
      "gathers weights again in backward")                                                         \
    X(shard_gradients, shard_gradients, "parallelism.fsdp_shard_gradients=true",                   \
      c->parallelism.fsdp_shard_gradients = true, other_order,                                     \
      "reduces gradients after every microbatch")                                                  \
    X(no_replicas, replicas,                                                                       \
      "parallelism.data_parallel_replicate_degree=1 "                                              \
      "parallelism.data_parallel_shard_degree=-1",                                                 \
      c->parallelism.data_parallel_replicate_degree = 1;                                           \
      c->parallelism.data_parallel_shard_degree = -1, other_order,                                 \
      "gathers and reduces over all data-parallel ranks")                                          \
    X(single_rows, rows, "training.local_batch_size=1", c->training.local_batch_size = 1,          \
      other_order, "smaller GEMMs, more of them; a step keeps its rows")                           \
    X(single_row_microbatches, rows, "parallelism.pipeline_parallel_microbatch_size=1",            \
      c->parallelism.pipeline_parallel_microbatch_size = 1, other_order,                           \
      "smaller GEMMs, more of them; a step keeps its rows")                                        \
    X(split_weights, master_weights, "optimizer.master_weights=split",                             \
      c->optimizer.master_weights = MASTER_WEIGHTS_split, other_rounding,                          \
      "the same 32 bits, of which bfloat16 rounds ties away from zero")                            \
    X(bfloat16_moments, moments, "optimizer.state_dtype=bfloat16",                                 \
      c->optimizer.state_dtype = STATE_DTYPE_bfloat16, other_rounding,                             \
      "moments keep 8 significant bits")                                                           \
    X(int8_moments, moments, "optimizer.state_dtype=int8",                                         \
      c->optimizer.state_dtype = STATE_DTYPE_int8, other_rounding,                                 \
      "moments keep 8 bits, scaled by blocks of 256")                                              \
    X(offloaded_state, offload_state, "optimizer.offload=true", c->optimizer.offload = true,       \
      same_bits, "copies optimizer state from and to host memory in each step")                    \
    X(offloaded_activations, offload_activations, "activation_checkpoint.offload=true",            \
      c->activation_checkpoint.offload = true, same_bits,                                          \
      "copies saved activations to host memory and back")                                          \
    X(bfloat16_gradients, gradients, "training.gradient_dtype=bfloat16",                           \
      c->training.gradient_dtype = GRADIENT_DTYPE_bfloat16, other_rounding,                        \
      "sums of microbatches keep 8 significant bits, rounded stochastically")                      \
    X(nondeterministic, deterministic, "device.deterministic=false",                               \
      c->device.deterministic = false, other_order,                                                \
      "attention backward adds in any order: bits differ from run to run")

struct memory_option {
    const char *knob, *settings, *text;
    void (*set)(struct config *c);
    enum numerics numerics;
    /* Compared with the run as configured; NAN: unknown. */
    double saved_bytes, added_s;
    bool applies; /* to this run: it saves memory */
};

enum { MAX_MEMORY_OPTIONS = 32, MAX_MEMORY_SETS = 10 };

/* Some options, at most one of each knob. */
struct memory_set {
    int options[MAX_MEMORY_OPTIONS], count; /* indices */
    enum numerics numerics;                 /* the strongest of its options' */
    struct layout_cost cost;
};

struct memory_fit {
    const struct config *config;
    const struct cost_model *model;
    struct mesh mesh;
    int ranks;
    int64_t step_rows;
    struct memory_option options[MAX_MEMORY_OPTIONS];
    int num_options;
    struct layout_cost configured;
    bool fits; /* as configured; then there are no sets */
    /* Sets with which the run fits, and of which no smaller set does; the fastest first. */
    struct memory_set sets[MAX_MEMORY_SETS];
    int num_sets;
};

/* Fills in the options and sets; the caller has set the members before.  Errors as trainer_plan. */
enum status memory_fit_run(struct memory_fit *f);
/* Appends the settings of a set, separated by spaces. */
void memory_fit_settings(const struct memory_fit *f, const struct memory_set *s, struct text *out);
