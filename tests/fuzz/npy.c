/* npy.c -- fuzzes the readers of .npy and of .bin without an index: any bytes must yield token IDs
 * or a clean error. */
// SPDX-License-Identifier: Apache-2.0
#include "base/heap.h"
#include "formats/raw_tokens.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

typedef enum status parser(struct npy *n, const unsigned char *bytes, uint64_t size);

static void run(parser *parse, const uint8_t *bytes, size_t len)
{
    struct npy n = {.path = heap_string("input", 5)};
    if (!parse(&n, bytes, len) && n.rows) {
        int32_t *ids = heap((n.columns + 1) * sizeof *ids);
        for (uint64_t row = 0; row < n.rows && row < 64; row++) {
            enum status st = npy_read(&n, row * n.columns, n.columns, 0, ids);
            BUG_IF(st && st != STATUS_RECORD);
        }
        free(ids);
    }
    npy_close(&n);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    run(npy_parse, bytes, len);
    run(raw_tokens_parse, bytes, len);
    return 0;
}
