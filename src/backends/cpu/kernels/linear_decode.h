/* linear_decode.h -- y = x w^T for a few tokens, as in decoding: reads the weights once, in place,
 * and is bound by that.
 *
 * Order    The bits of a token do not depend on the other tokens, as long as the same variant
 *          (vectors or tiles) computes them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "ops/linear.h"

#include <stdbool.h>

/* Whether so few tokens take less time here than in the GEMM, which packs the weights. */
bool KERNEL(linear_decode_used)(const struct linear *l);
/* linear_forward for those; `scale` is that of FP8 operands, or 1.  x and y are not packed. */
enum status KERNEL(linear_decode)(const struct linear *l, const struct linear_fwd *io, float scale,
                                  struct queue *queue);
