// SPDX-License-Identifier: Apache-2.0
#include "ops/accumulate_gradients.h"
#include "backends/cpu/cpu.h"
#include "base/rng.h"
#include "ops/update.h"

enum status reference_accumulate_gradients(const struct accumulate_gradients *a,
                                           const struct accumulate_gradients_io *io,
                                           struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    for (size_t i = 0; i < a->n; i++) {
        uint64_t at = accumulate_gradients_position(a, i);
        struct rng_block b =
            rng_bits(a->seed, RNG_GRADIENTS, accumulate_gradients_step(a), at / ADAMW_BLOCK);
        uint16_t bits = (uint16_t)(b.bits[at % ADAMW_BLOCK / 2] >> 16 * (at % 2));
        float sum = io->x_n[i] + (a->accumulate ? bf16_to_f32(io->y_n[i]) : 0);
        io->y_n[i] = bf16_from_f32_stochastic(sum, bits);
    }
    return STATUS_OK;
}
