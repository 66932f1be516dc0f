// SPDX-License-Identifier: Apache-2.0
#include "ops/kv_append.h"
#include "backends/cpu/kernels/kernels.h"
#include "tensor/queue.h"

#include <string.h>

enum status KERNEL(kv_append)(const struct kv_append *a, const struct kv_append_io *io,
                              struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t row = (size_t)a->P * dtype_bytes(a->dtype);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++) {
        size_t to = (size_t)io->slots_N[n] * row;
        memcpy((char *)io->k_SP + to, (const char *)io->k_NP + n * row, row);
        memcpy((char *)io->v_SP + to, (const char *)io->v_NP + n * row, row);
    }
    return STATUS_OK;
}
