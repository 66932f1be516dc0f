/* draw_compare.h -- compares runs of a draw: their bits, or how much their losses differ. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "system/draw.h"

enum answer { NOT_APPLICABLE, HOLDS, BROKEN };

/* With these, layouts and devices only add in another order, and a checkpoint has the gradients of
 * step 1. */
#define DRAW_IN_FLOAT32                                                                            \
    " training.mixed_precision_param=float32 training.gradient_dtype=float32"                      \
    " optimizer.state_dtype=float32 optimizer.master_weights=float32 model.converters=[]"          \
    " checkpoint.enable_first_step_checkpoint=true checkpoint.keep_latest_k=0"

/* BROKEN, and why: the exit code of a command. */
enum answer draw_broken(struct text *why, int code, const struct text *err);

/* Whether the run `b` has the metrics of `a`; a resumed one has its last lines. */
enum answer draw_same_metrics(const struct draw *d, const char *a, const char *b, bool resumes,
                              struct text *why);
/* Whether the last checkpoints of two runs have the same bits. */
enum answer draw_same_state(const struct draw *d, const char *a, const char *b, struct text *why);

/* Whether it computes and stores in float32. */
bool draw_is_float32(const struct draw *d);

/* Largest relative differences between two runs. */
struct draw_limits {
    double loss, norm, gradient; /* gradient: of a tensor, in 2-norms; 0: not compared */
    int norm_steps;              /* that have a comparable norm; 0: all */
};
extern const struct draw_limits draw_in_float32, draw_in_bfloat16, draw_in_float8;
/* Those of its precision. */
const struct draw_limits *draw_limits(const struct draw *d);

/* Whether losses, gradient norms and the gradients of step 1 differ by no more; *why gets by how
 * much. */
enum answer draw_close(const struct draw *d, const char *a, const char *b,
                       const struct draw_limits *most, struct text *why);
