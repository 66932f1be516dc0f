/* stage_pass.h -- a microbatch through one pipeline stage, forward and backward.
 *
 * The residual stream comes from the stage before and goes to the next; the embedding makes the
 * first, the head turns the last into losses and their gradient.
 *
 * Axes     B rows, T tokens, S of them whose residual stream is local, D width.
 * Memory   A stage_pass holds what a microbatch saves between its forward and its backward;
 *          everything else is shared by all passes, which run one after the other. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/activations.h"
#include "model/model.h"

struct stage_pass {
    const struct stage *stage;  /* borrowed */
    struct activations *blocks; /* of the stage's blocks, owned; stage_pass_init */
    /* The stage's input and output, dtype; the same buffer if it has no blocks.  Those that
     * stage_pass_alloc does not allocate are the caller's. */
    void *in_SD, *out_SD;
    const struct activations *shared; /* borrowed; stage_pass_alloc */
};
void stage_pass_init(struct stage_pass *p, const struct stage *s);
void stage_pass_release(struct stage_pass *p);

/* SHAPE: a microbatch of a size that the model cannot process. */
enum status stage_pass_check(const struct model *m, const struct microbatch *b);
/* Elements of the residual stream, S * D. */
size_t stage_pass_residual_elements(const struct model *m, const struct microbatch *b);
/* Allocates the buffers that all passes share. */
void stage_pass_alloc_shared(const struct model *m, const struct microbatch *b,
                             struct activations *shared, struct arena *step);
/* Allocates what this pass saves: activations, and the streams that never leave the stage, which
 * are the input of a stage that embeds and the output of one that has the head. */
void stage_pass_alloc(const struct model *m, const struct microbatch *b,
                      const struct activations *shared, struct stage_pass *p, struct arena *step);

/* From in_SD to out_SD; the head runs in backward. */
enum status stage_pass_forward(const struct model *m, const struct microbatch *b,
                               const struct stage_pass *p);
/* dx_SD: the gradient of the stage's output, replaced by that of its input.  A stage with the head
 * computes it itself, and fills loss and best. */
enum status stage_pass_backward(const struct model *m, const struct microbatch *b,
                                const struct stage_pass *p, void *dx_SD, struct arena *step);
/* Forward only, in place, saving nothing: x_SD is the input, then the output.  A stage with the
 * head fills loss and best.  Of `p` only stage and shared are used; shared is allocated for
 * RECOMPUTE_FULL. */
enum status stage_pass_infer(const struct model *m, const struct microbatch *b,
                             const struct stage_pass *p, void *x_SD, struct arena *step);
