/* embedding.c (cpu) -- copies rows.  Backward: threads own columns, 64 at a time, so narrow rows
 * leave threads idle. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum status KERNEL(embedding_forward)(const struct embedding *a, const struct embedding_fwd *io,
                                      struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t row = (size_t)a->D * dtype_bytes(a->dtype);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++) {
        int from = embedding_row(a, io->ids_N[n]);
        char *to = (char *)io->y_ND + n * row;
        if (from < 0)
            memset(to, 0, row);
        else
            memcpy(to, (const char *)io->w_VD + (size_t)from * row, row);
    }
    return STATUS_OK;
}

/* Threads split the columns, so each sums the tokens in token order. */
enum status KERNEL(embedding_backward)(const struct embedding *a, const struct embedding_bwd *io,
                                       struct queue *queue)
{
    enum { CHUNK = 64 };
    if (queue->sizing) return STATUS_OK;
    size_t D = (size_t)a->D, chunks = (D + CHUNK - 1) / CHUNK;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        size_t begin = chunk * CHUNK, count = D - begin < CHUNK ? D - begin : CHUNK;
        for (size_t n = 0; n < (size_t)a->N; n++) {
            int row = embedding_row(a, io->ids_N[n]);
            if (row < 0) continue;
            float dy[CHUNK], *dw = io->dw_VD + (size_t)row * D + begin;
            vector_load(io->dy_ND, n * D + begin, a->dtype, count, dy);
            for (size_t d = 0; d < count; d++) dw[d] += dy[d];
        }
    }
    return STATUS_OK;
}
