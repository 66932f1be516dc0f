/* head.h -- last norm, output projection and cross entropy, forward and backward together.
 *
 * Memory   Logits exist for a chunk of tokens only: about 128 MiB, but at least 1024 tokens or
 *          the backend's logit_rows (ops.h); with fewer, the GEMMs would be bound by rereading the
 *          head's weights and rewriting their gradient.
 * Labels   If tokens with a label fit into fewer chunks, the head gathers them, and others to fill
 *          the last chunk, and scatters losses and the gradient of x.  Without causal attention
 *          only masked tokens have a label: a chunk then has at most a 16th of the tokens, or a
 *          quarter of 1024 or logit_rows, so that few others fill it.  All chunks but the last one
 *          of all tokens have the same size, so no GEMM has sizes that no sizing pass has seen.
 *          The loss and the gradient of each token have the same bits as without, if the backend's
 *          GEMMs compute all rows alike; the weights' gradient adds tokens in another order. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

struct head_io {
    const void *x_SD; /* output of the last block */
    bool backward;
    void *dx_SD;      /* with `backward`: the gradient of x; replaced */
    void *scratch_ND; /* overwritten; if S = N it may be dx_SD, or x_SD without `backward` */
};
/* How many tokens the head computes of a microbatch with num_labels labels: whole chunks, at least
 * one, or all tokens. */
int head_count_tokens(const struct model *m, const struct microbatch *b, int num_labels);
/* Fills b's loss and best; with `backward` also accumulates the gradients of the norm and the head.
 * Their units are open. */
enum status head_loss(const struct model *m, const struct microbatch *b, struct head_io io,
                      struct arena *step);

/* Divides normalized tokens, or their gradients, in place by logits_scaling, and so the logits. */
enum status head_scale(const struct model *m, void *y_ND, size_t N);
/* The weights of the output projection: the embedding's if tied. */
enum param_id head_param(const struct model *m);
