/* init_weights.h -- initial values of the weights.
 *
 * A pure function of (seed, tensor, element), so they do not depend on the parallel layout.
 *
 * INIT_torchtitan   norms 1; embedding N(0, 1); q, k, v, gate N(0, std); out, up, down
 *                   N(0, std / sqrt(2 (layer + 1))), without depth_init std / sqrt(2 L); head
 *                   N(0, 1/sqrt(D)) truncated at three deviations, and so is an embedding that
 *                   serves as the head.
 * INIT_normal       norms 1; all else N(0, std).
 * INIT_megatron     as INIT_normal, but out and down N(0, std / sqrt(2 L)).
 * Here std is init_std, 0.02 by default. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/shard.h"
#include "tensor/store.h"

#include <stdint.h>

/* Initializes the elements of a shard, in any storage; `l` is the layout of the whole model. */
enum status init_weights_store(const struct layout *l, const struct shard *p,
                               const struct model_shape *m, uint64_t seed, const struct store *to);
/* Draws only the first elements of each run of a shard; the device repeats them: for benchmarks,
 * whose time does not depend on the values as long as these are random. */
enum status init_weights_repeat(const struct layout *l, const struct shard *p,
                                const struct model_shape *m, uint64_t seed, const struct store *to);
