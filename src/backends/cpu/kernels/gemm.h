/* gemm.h -- matrix products of bf16 with sums in f32: the products of a linear layer.
 *
 * Layout   Operands are first packed into panels of 32 rows of A and 32 columns of B, zero-padded
 *          to whole panels and to whole steps of 32 along K (see panel.h), unless they lie so; the
 *          product of two panels is 32 x 32 sums in registers or tiles.  gemm_engine.h: in what
 * order they meet. Order    An element is summed along K in order, in parts that depend on the
 * sizes alone: the bits do not depend on the number of threads, nor on the way. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_blocking.h"
#include "backends/cpu/gemm_shape.h"
#include "backends/cpu/kernels/kernels.h"

/* s->dtype is BF16, s->out BF16 or F32. */
enum status KERNEL(gemm)(const struct gemm_shape *s, const struct gemm_blocking *blocking,
                         const struct gemm_buffers *io, struct queue *queue);
