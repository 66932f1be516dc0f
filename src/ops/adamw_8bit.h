/* adamw_8bit.h -- AdamW whose moments are quantized to 8 bits by blocks (tensor/blockwise.h), as
 * bitsandbytes' AdamW8bit: dequantizes a block's moments, computes the step of struct adamw in f32,
 * updates the weights with the new moments, then quantizes these.
 *
 * Axes     n elements, in blocks of BLOCKWISE_BLOCK from the first on.  The caller aligns blocks to
 *          the tensor, so that the result does not depend on how the tensor is divided. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/update.h"

struct adamw_8bit {
    struct adamw adamw; /* without moments, seed and positions */
};
struct adamw_8bit_io {
    float *w_n; /* NULL if split */
    uint8_t *m_n, *v_n;
    float *m_scale, *v_scale; /* of each block */
    const void *g_n;
    void *copy_n; /* as in struct adamw_io */
    uint16_t *low_n;
};
/* SHAPE: as adamw. */
enum status adamw_8bit(const struct ops *, const struct adamw_8bit *, const struct adamw_8bit_io *,
                       struct queue *);
