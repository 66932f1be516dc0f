/* blend.h -- Megatron-LM's data mixture (BlendedDataset): which range of each source a split reads,
 * and which source and sample give row g. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum blend_part { BLEND_TRAIN, BLEND_VALID, BLEND_TEST, BLEND_PARTS };

/* For a split such as "969, 30, 1": `part` reads the sequences [*begin, *end) of `count`.
 * CONFIG: the split is malformed, or the part is empty. */
enum status blend_split_range(const char *split, enum blend_part part, uint64_t count,
                              uint64_t *begin, uint64_t *end);

void blend_normalize(double *weights, size_t count); /* to a sum of 1 */

/* The samples that a source of this weight contributes to `samples`; and with the margin of 0.5 %
 * that its index is built for. */
uint64_t blend_target(uint64_t samples, double weight);
uint64_t blend_add_margin(uint64_t target);

/* Row g is sample sample[g] of source source[g]. */
struct blend {
    uint64_t size;
    uint16_t *source;
    uint32_t *sample;
};
enum { BLEND_SOURCES = 32766 }; /* maximum number of sources */

/* Blends by normalized weights (Megatron's build_blending_indices), or takes every sample of each
 * source once (build_exhaustive_blending_indices).  UNSUPPORTED: more than 2^32 - 1.  MEMORY. */
enum status blend_weighted(struct blend *b, const double *weights, size_t count, uint64_t size);
enum status blend_exhaustive(struct blend *b, const uint64_t *sizes, size_t count);
void blend_release(struct blend *b);
