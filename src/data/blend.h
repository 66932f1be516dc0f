/* blend.h -- Megatron's mixture: which part of each source is read, and which source gives row g.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum blend_part { BLEND_TRAIN, BLEND_VALID, BLEND_TEST, BLEND_PARTS };

/* A split such as "969, 30, 1": the part's sequences are those of [*begin, *end) of `count`.
 * CONFIG: it is no split, or gives the part nothing. */
enum status blend_split(const char *split, enum blend_part part, uint64_t count, uint64_t *begin,
                        uint64_t *end);

void blend_normalize(double *weights, size_t count); /* their sum becomes 1 */

/* Samples a source gives of so many; and those its index is built for, 0.5 % more. */
uint64_t blend_target(uint64_t samples, double weight);
uint64_t blend_with_surplus(uint64_t target);

/* Row g is sample sample[g] of source source[g]. */
struct blend {
    uint64_t size;
    uint16_t *source;
    uint32_t *sample;
};
enum { BLEND_SOURCES = 32766 }; /* at most */

/* By weights whose sum is 1; or every sample of each source once.  MEMORY. */
enum status blend_weighted(struct blend *b, const double *weights, size_t count, uint64_t size);
enum status blend_whole(struct blend *b, const uint64_t *sizes, size_t count);
void blend_release(struct blend *b);
