/* weight_scale.h -- the scales of weights that are stored in FP8.
 *
 * A weight is its FP8 value times a scale.  One scale belongs to the whole tensor (shape [] or
 * [1]), to a row ([rows] or [rows, 1]), or to a block of 128 x 128, of which those at the right and
 * lower edge may be smaller.  The shape tells which.  The scales' name is the weight's and _scale
 * (fbgemm_fp8, compressed-tensors) or _scale_inv (fp8), which is a factor, too.
 * Memory   Borrows the files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "formats/safetensors.h"

struct weight_scale {
    const struct safetensors *file;
    const struct safetensors_tensor *tensor; /* NULL: the weight has no scales */
    uint64_t columns;                        /* of the weight; 1 if it is a vector */
    uint64_t block_rows, block_columns;      /* elements with one scale */
    uint64_t blocks;                         /* in a row of blocks */
};

/* Whether weights of this dtype require scales: F8_E4M3 and F8_E5M2. */
bool weight_scale_is_needed(enum safetensors_dtype dtype);
/* DATA: the scales have another shape, or are FP8 themselves. */
enum status weight_scale_open(struct weight_scale *s, const struct safetensors_tensor *weight,
                              const struct safetensors *file,
                              const struct safetensors_tensor *scales);
/* Multiplies elements [first, first + count) of the weight, in row-major order, by their scales.
 * IO, DATA: as file_map_check. */
enum status weight_scale_apply(const struct weight_scale *s, uint64_t first, uint64_t count,
                               float *values);
/* Whether a tensor of this name belongs to a quantized weight: its scales, those of activations or
 * of the KV cache.  *weight_len: length of the weight's name at the start of it, or 0. */
bool weight_scale_is_name(const char *name, size_t *weight_len);
