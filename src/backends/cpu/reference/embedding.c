// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include <string.h>

enum status reference_embedding_forward(const struct embedding *a, const struct embedding_fwd *io,
                                        struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t row = (size_t)a->D * dtype_bytes(a->dtype);
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

enum status reference_embedding_backward(const struct embedding *a, const struct embedding_bwd *io,
                                         struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t D = (size_t)a->D;
    for (size_t n = 0; n < (size_t)a->N; n++) {
        int row = embedding_row(a, io->ids_N[n]);
        for (size_t d = 0; d < D && row >= 0; d++)
            io->dw_VD[(size_t)row * D + d] += element_get(io->dy_ND, n * D + d, a->dtype);
    }
    return STATUS_OK;
}
