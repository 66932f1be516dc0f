/* npy.c -- fuzzes the .npy reader: any bytes must yield token IDs or a clean error. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/npy.h"
#include "base/heap.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct npy n = {.path = heap_string("input", 5)};
    if (!npy_parse(&n, bytes, len) && n.rows) {
        int32_t *ids = heap((n.columns + 1) * sizeof *ids);
        for (uint64_t row = 0; row < n.rows && row < 64; row++) {
            enum status st = npy_read(&n, row * n.columns, n.columns, 0, ids);
            BUG_IF(st && st != STATUS_RECORD);
        }
        free(ids);
    }
    npy_close(&n);
    return 0;
}
