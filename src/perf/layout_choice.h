/* layout_choice.h -- the layouts that `plan --search` chooses from: degrees of the mesh, rows of a
 * microbatch, pipeline schedule, activation checkpointing, and what FSDP shards.
 *
 * Order    A choice never changes what a step computes: rows of a step, their length, the model and
 *          the optimizer stay as configured. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "config/config.h"

/* name, activation_checkpoint.mode */
#define RECOMPUTATION_LIST(X)                                                                      \
    X(none, ACTIVATION_CHECKPOINT_none)                                                            \
    X(selective, ACTIVATION_CHECKPOINT_selective)                                                  \
    X(full, ACTIVATION_CHECKPOINT_full)

/* name, fsdp_reshard_after_forward, fsdp_shard_gradients */
#define SHARDING_LIST(X)                                                                           \
    X(zero3, FSDP_RESHARD_always, true)                                                            \
    X(zero2, FSDP_RESHARD_never, true)                                                             \
    X(zero1, FSDP_RESHARD_never, false)

enum recomputation {
#define X(name, ...) RECOMPUTATION_##name,
    RECOMPUTATION_LIST(X)
#undef X
        RECOMPUTATION_COUNT
};
enum sharding {
#define X(name, ...) SHARDING_##name,
    SHARDING_LIST(X)
#undef X
        SHARDING_COUNT
};
const char *layout_choice_recomputation_name(enum recomputation r);
const char *layout_choice_sharding_name(enum sharding s);

struct layout_choice {
    int degree[AXIS_COUNT];
    int rows;   /* of a microbatch */
    int chunks; /* stages per rank; above 1: Interleaved1F1B, else 1F1B */
    enum recomputation recomputation;
    enum sharding sharding;
};

/* Calls each(context, choice) for every layout of `ranks` ranks whose degrees suit the model and a
 * step of `step_rows` rows.  Some may still break a rule of config_fit.  `c` is the configuration
 * whose other options stay. */
struct layout_choices {
    const struct config *config;
    const struct model_shape *shape;
    int ranks;
    int64_t step_rows;
};
void layout_choice_each(const struct layout_choices *all,
                        void (*each)(void *context, const struct layout_choice *choice),
                        void *context);

/* Whether results depend on training.local_batch_size: the losses of loss_norm = "rank_mean", and
 * elastic sums.  Then it stays as configured. */
bool layout_choice_keeps_rows(const struct config *c);
/* Sets the options of the choice in a copy of the configuration, and its mesh. */
void layout_choice_apply(const struct layout_choice *x, const struct layout_choices *all,
                         struct config *c, struct mesh *mesh);
/* Appends the settings, "section.key=value" separated by spaces; those of the pipeline only if
 * there is one. */
void layout_choice_settings(const struct layout_choice *x, const struct layout_choices *all,
                            struct text *out);
