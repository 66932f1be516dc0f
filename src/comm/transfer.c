// SPDX-License-Identifier: Apache-2.0
#include "comm/transfer.h"

#include "base/status.h"

#include <string.h>

const char *transfer_name(enum transfer_kind k)
{
    static const char *const names[] = {
#define X(name, text) #name,
        TRANSFER_LIST(X)
#undef X
    };
    return names[k];
}

size_t transfer_element_bytes(const struct transfer *t)
{
    return t->is_bytes ? 1 : dtype_bytes(t->dtype);
}

const char *transfer_element_name(const struct transfer *t)
{
    return t->is_bytes ? "bytes" : dtype_name(t->dtype);
}

size_t transfer_bytes_to_own(const struct transfer *t)
{
    bool moves = t->kind == TRANSFER_reduce_scatter || t->kind == TRANSFER_shift ||
                 t->kind == TRANSFER_all_to_all;
    return moves && t->own != t->x ? t->count * transfer_element_bytes(t) : 0;
}

void transfer_copy_to_own(const struct transfer *t)
{
    BUG_IF(t->kind == TRANSFER_send || t->kind == TRANSFER_receive); /* there is no other rank */
    size_t bytes = transfer_bytes_to_own(t);
    if (bytes) memcpy(t->own, t->x, bytes);
}

size_t transfer_part(const size_t *sizes, int rank)
{
    size_t before = 0;
    for (int r = 0; r < rank; r++) before += sizes[r];
    return before;
}

enum { CHUNKS = 1 << 22, MIN_CHUNK = 1 << 14 }; /* elements of all ranks' chunks; of one chunk */

size_t transfer_chunk(size_t count, int size)
{
    size_t chunk = CHUNKS / (size_t)size;
    if (chunk < MIN_CHUNK) chunk = MIN_CHUNK;
    return count < chunk ? count : chunk;
}

size_t transfer_shard(size_t count, int size, int rank, size_t *begin)
{
    size_t each = (count + (size_t)size - 1) / (size_t)size, first = (size_t)rank * each;
    *begin = first < count ? first : count;
    return count - *begin < each ? count - *begin : each;
}

size_t transfer_work_bytes(enum transfer_kind kind, enum dtype dtype, size_t count, int size)
{
    size_t begin;
    if (size == 1 || (kind != TRANSFER_reduce_scatter && kind != TRANSFER_all_reduce)) return 0;
    if (kind == TRANSFER_all_reduce) count = transfer_shard(count, size, 0, &begin);
    return transfer_chunk(count, size) * (size_t)size * dtype_bytes(dtype);
}
