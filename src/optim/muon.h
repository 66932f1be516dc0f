/* muon.h -- Muon (Jordan et al. 2024), as torch.optim.Muon computes it, for the matrices of blocks:
 *   m = momentum m + (1-momentum) g;  u = nesterov ? (1-momentum) g + momentum m : m
 *   X = u / max(||u||_F, 1e-7); ns_steps times: A = X X^T, X = (a I + b A + c A^2) X
 *   w = (1 - lr weight_decay) w - lr adjust X
 * with (a, b, c) = (3.4445, -4.7750, 2.0315), A = X^T X on the right of X for a matrix of more rows
 * than columns, and adjust from the size of the whole matrix (optimizer.adjust_lr_fn).
 *
 * Memory   m is in exp_avg; exp_avg_sq does not have these matrices.  Scratch memory of the queue:
 *          a Gram matrix of the largest size and its square, and whole matrices.  One rank: two.
 *          FSDP: three, and this rank's shards of two rounds, together about two more; with tensor
 *          parallelism another.  Tensor parallelism alone: two, and this rank's slices of one
 *          round.
 * Order    Newton-Schulz: GEMMs take X, A and the polynomial of A in the dtype that the model
 *          computes in, and add up in f32; in bfloat16 each is rounded once.  torch, always in
 *          bfloat16, rounds b A + c A^2 and adds a X to its product with X.  Near convergence the
 *          diagonal of b A + c A^2 is about -2.7, that of a I + b A + c A^2 about 0.7, so ours
 *          rounds smaller numbers.  The norm, that of u in f32, stays on the device; nothing
 *          synchronizes with the host.
 * Ranks    The ranks of an FSDP group and of their tensor-parallel groups shard the matrices.  They
 *          process them in rounds of one matrix per rank, in descending order of their cost, so
 *          that ranks do not wait long for each other.  All-to-alls, over the FSDP group and
 *          then over the tensor-parallel one, gather the shards of u of one matrix on each rank,
 *          which iterates; the same in reverse scatters the shards of X.  So the bits of X do not
 *          depend on the layout, and an element travels once in each direction, with tensor
 *          parallelism twice.  The FSDP group's transfers overlap the iterations of other rounds:
 *          halfway through a round, the previous round's scatter ends and the next round's gather
 *          begins. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optim.h"

/* One step on the matrices of this rank's stages.  Does nothing if optimizer.name is
 * another.  Collective over o->fsdp and o->tp.  The first one allocates o->muon.  After an error no
 * transfer is in flight. */
enum status muon_step(struct optim *o, const struct ops *ops, const struct optim_update *u,
                      struct queue *queue);
void muon_release(struct optim *o);
