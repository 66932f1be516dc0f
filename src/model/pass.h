/* pass.h -- a micro-batch through one stage of the model, forward and backward.
 *
 * The residual stream comes from the stage before and goes to the one behind; the embedding makes
 * the first, the head turns the last into losses and their gradient.
 *
 * Axes     B rows, T tokens, S of them whose residual stream is here, D width.
 * Memory   What a micro-batch leaves from its forward to its backward is in its pass; everything
 *          else is shared by all passes, which use it one after the other. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/block.h"

struct pass {
    const struct stage *stage;  /* borrowed */
    struct activations *blocks; /* of the stage's blocks, owned; pass_init */
    /* The stage's input and output, dtype; they are one where it has no blocks.  The caller's, but
     * for those that pass_take takes. */
    void *in_SD, *out_SD;
    const struct activations *shared; /* borrowed; pass_take */
};
void pass_init(struct pass *p, const struct stage *s);
void pass_release(struct pass *p);

/* SHAPE: a batch that the model cannot take. */
enum status pass_check(const struct model *m, const struct micro_batch *b);
/* Elements of a stream. */
size_t pass_elements(const struct model *m, const struct micro_batch *b);
/* Takes what all passes share. */
void pass_share(const struct model *m, const struct micro_batch *b, struct activations *shared,
                struct arena *step);
/* Takes what this one keeps: activations, and streams that only the stage itself has to do with,
 * such as the input where it embeds and the output where it has the head. */
void pass_take(const struct model *m, const struct micro_batch *b, const struct activations *shared,
               struct pass *p, struct arena *step);

/* From in_SD to out_SD; the head is left to the backward. */
enum status pass_forward(const struct model *m, const struct micro_batch *b, const struct pass *p);
/* dx_SD: the gradient of the stage's output, replaced by that of its input.  A stage that has the
 * head makes it itself, and fills loss and best. */
enum status pass_backward(const struct model *m, const struct micro_batch *b, const struct pass *p,
                          void *dx_SD, struct arena *step);
/* Forward only, in place: x_SD is the input, then the output.  A stage that has the head fills loss
 * and best. */
enum status pass_infer(const struct model *m, const struct micro_batch *b, const struct stage *s,
                       const struct activations *shared, void *x_SD, struct arena *step);

/* The stream of the batch's ids; `wide` as model_wide gives it. */
enum status model_embed(const struct model *m, const struct micro_batch *b, void *wide_ND,
                        void *x_SD);
