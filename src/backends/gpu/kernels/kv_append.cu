/* kv_append.cu -- a thread copies 16 bytes of a token's keys and values, or 2 bytes where rows are
 * not aligned.
 *
 * Bytes     4 N P e, and 4 N. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/kv_append.h"
}

enum { BLOCK = 256 };

template <typename UNIT>
__global__ static void kv_append_kernel(size_t N, size_t units, struct kv_append_io io)
{
    size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= N * units) return;
    size_t n = i / units, to = (size_t)io.slots_N[n] * units + i % units;
    ((UNIT *)io.k_SP)[to] = ((const UNIT *)io.k_NP)[i];
    ((UNIT *)io.v_SP)[to] = ((const UNIT *)io.v_NP)[i];
}

template <typename UNIT>
static enum status launch(const struct kv_append *a, const struct kv_append_io *io,
                          struct queue *queue)
{
    size_t N = (size_t)a->N, units = (size_t)a->P * dtype_bytes(a->dtype) / sizeof(UNIT);
    LAUNCH(kv_append_kernel<UNIT>, (unsigned)ceil_div(N * units, BLOCK), BLOCK, 0, queue, N, units,
           *io);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(kv_append)(const struct kv_append *a, const struct kv_append_io *io,
                                           struct queue *queue)
{
    size_t row = (size_t)a->P * dtype_bytes(a->dtype);
    if (queue->sizing) return STATUS_OK;
    if (row % 16 == 0 && is_aligned(io->k_NP) && is_aligned(io->v_NP) && is_aligned(io->k_SP) &&
        is_aligned(io->v_SP))
        return launch<uint4>(a, io, queue);
    return launch<bf16>(a, io, queue);
}
