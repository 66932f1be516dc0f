/* gemm.h -- bf16 and f32 GEMMs with f32 accumulation, for the linear layers.
 *
 * Layout   Operands are packed into micro-panels of 32 rows of A and 32 columns of B, zero-padded
 *          to full panels and full k-steps (panel.h), unless they are stored in the panel layout.
 *          The micro-kernel multiplies two panels into a 32 x 32 micro-tile of C.  gemm_slice.h
 *          declares the loops around it.
 * Order    Each element is summed along K in order, in slices that depend on the sizes alone: the
 *          bits depend neither on the number of threads nor on the blocking. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_blocking.h"
#include "backends/cpu/gemm_shape.h"
#include "backends/cpu/kernels/kernels.h"

/* s->dtype and s->out may be BF16 or F32; the panel layout and s->scaled are for BF16. */
enum status KERNEL(gemm)(const struct gemm_shape *s, const struct gemm_blocking *blocking,
                         const struct gemm_buffers *io, struct queue *queue);
