/* hf_fused.h -- Phi-3's fused matrices: Transformers stores q, k and v as qkv_proj, and gate and up
 * as gate_up_proj, one below the other. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "model/model_shape.h"
#include "model/params.h"

#include <stdbool.h>
#include <stdint.h>

enum { HF_FUSED_PARTS = 3 };

/* The number of matrices, from `id` on in llama.params, that are stored as one; 1: `id` is not the
 * first of a fused matrix. */
int hf_fused_count(enum param_id id);
/* Replaces the last part of the first matrix's name by the fused one's. */
void hf_fused_rename(enum param_id id, char *name, size_t size);

/* The parts of a fused matrix, or of what belongs to it, such as its scales in FP8. */
struct hf_fused_split {
    int count; /* 0: the name is not a fused matrix's */
    struct hf_fused_part {
        char *name; /* owned */
        int64_t row, rows;
    } parts[HF_FUSED_PARTS];
};
/* Splits a tensor of `rows` rows (0: without dimensions), of a model of this shape.  CONFIG: not as
 * many rows as the parts have.  DATA: scales that cannot be split. */
enum status hf_fused_split(struct hf_fused_split *s, const char *name, int64_t rows,
                           const struct model_shape *shape);
void hf_fused_split_release(struct hf_fused_split *s);
