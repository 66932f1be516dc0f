/* muon.h -- Muon (Jordan et al. 2024), as torch.optim.Muon computes it, for the matrices of blocks:
 *   m = momentum m + (1-momentum) g;  u = nesterov ? (1-momentum) g + momentum m : m
 *   X = u / max(||u||_F, 1e-7); ns_steps times: A = X X^T, X = a X + (b A + c A^2) X
 *   w = (1 - lr weight_decay) w - lr adjust X
 * with (a, b, c) = (3.4445, -4.7750, 2.0315), A = X^T X on the right of X for a matrix of more rows
 * than columns, and adjust from the size of the whole matrix (optimizer.adjust_lr_fn).
 *
 * Memory   m is in exp_avg; exp_avg_sq stays 0.  Three matrices, two on one rank, and two Gram
 *          matrices of the largest size are scratch memory of the queue.
 * Order    Newton-Schulz runs in float32; torch rounds X and A to bfloat16.  Where the model
 *          computes in bfloat16, cuBLASLt may round the operands of its GEMMs to TF32.
 * Ranks    The ranks that shard a matrix, of an FSDP group and their tensor-parallel groups, take
 *          as many matrices at a time as they are.  Each adds its shard of u to zeros, and an
 *          all-reduce over either group makes the matrix whole, exactly.  One rank iterates on it
 *          and broadcasts X.  So the bits of X do not depend on the layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optim.h"

/* One step on the matrices of this rank's stages.  Does nothing if optimizer.name is
 * another.  Collective over o->fsdp and o->tp. */
enum status muon_step(const struct optim *o, const struct ops *ops, const struct optim_update *u,
                      struct queue *queue);
