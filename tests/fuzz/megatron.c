/* megatron.c -- fuzzes the Megatron index reader: any .idx must yield documents and sequences
 * within the .bin, or a clean error.  The first byte is the length of the .bin. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/megatron.h"
#include "base/heap.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void read(const struct megatron *m, uint64_t s, uint64_t from, uint64_t count)
{
    int32_t *ids = heap(count * sizeof *ids);
    enum status st = megatron_read_sequence(m, (struct megatron_range){s, from, count}, 0, ids);
    BUG_IF(st && st != STATUS_RECORD);
    for (uint64_t i = 0; !st && i < count; i++) BUG_IF(ids[i] < 0);
    free(ids);
}

/* Reads every sequence and document; their tokens must add up to the same total. */
static void use(const struct megatron *m)
{
    uint64_t of_documents = 0, of_sequences = 0;
    for (uint64_t s = 0; s < m->num_sequences; s++) {
        uint64_t length = megatron_sequence_length(m, s);
        of_sequences += length;
        read(m, s, 0, length);
        read(m, s, length / 3, length - length / 3);
    }
    for (uint64_t d = 0; d < m->num_documents; d++) {
        uint64_t length = megatron_document_length(m, d);
        of_documents += length;
        int32_t *ids = heap(length * sizeof *ids);
        enum status st = megatron_read_document(m, d, length, 0, ids);
        BUG_IF(st && st != STATUS_RECORD && st != STATUS_DATA);
        free(ids);
    }
    BUG_IF(of_documents != of_sequences);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (!len) return 0;
    unsigned char *bin =
        malloc(bytes[0] + 1u); /* exact size, so that ASan detects reads past the end */
    for (unsigned i = 0; bin && i < bytes[0]; i++) bin[i] = (unsigned char)(i % 5 ? 0 : i);
    struct megatron m = {.idx = {.data = bytes + 1, .size = len - 1},
                         .bin = {.data = bin, .size = bin ? bytes[0] : 0}};
    if (!megatron_parse(&m, "input")) use(&m);
    free(bin);
    return 0;
}
