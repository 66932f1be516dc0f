/* safetensors.c -- fuzzes the safetensors reader: any bytes must yield tensors within the file, or
 * a clean error. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Every tensor must be within the file, readable, and found by its name. */
static void check_tensors(struct safetensors *s, size_t len)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        BUG_IF(t->end < t->begin || s->data + t->end > len);
        BUG_IF(safetensors_find(s, t->name) != t);
        BUG_IF(t->elements * safetensors_dtype_bytes(t->dtype) != t->end - t->begin);
        float *out = heap(t->elements * sizeof *out);
        enum status st = safetensors_read_part(s, t, 0, t->elements, out);
        BUG_IF(st && st != STATUS_UNSUPPORTED);
        free(out);
        uint16_t *halves = heap(t->elements * sizeof *halves);
        enum status again = safetensors_read_part_bf16(s, t, 0, t->elements, halves);
        BUG_IF(t->elements && again != st);
        free(halves);
    }
}

/* A header written for the same tensors must parse and yield them again. */
static void check_round_trip(const struct safetensors *s)
{
    struct safetensors_tensor *copies = heap(s->count * sizeof *copies);
    struct safetensors again = {.path = heap_string("again", 5)};
    struct text file = {0};
    uint64_t total;
    for (size_t i = 0; i < s->count; i++) copies[i] = *s->by_name[i];
    safetensors_build_header(copies, s->count, &file, &total);
    size_t header = file.len;
    if (total > 1 << 20) goto out;
    text_reserve(&file, total);
    memset(file.data + header, 0, total);
    BUG_IF(safetensors_parse(&again, (const uint8_t *)file.data, header + total));
    BUG_IF(again.count != s->count);
    for (size_t i = 0; i < s->count; i++) BUG_IF(!safetensors_find(&again, s->by_name[i]->name));
out:
    text_release(&file);
    safetensors_close(&again);
    free(copies);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct safetensors s = {.path = heap_string("input", 5)};
    if (!safetensors_parse(&s, bytes, len)) {
        s.map = (struct file_map){.data = bytes, .size = len};
        check_tensors(&s, len);
        check_round_trip(&s);
        s.map = (struct file_map){0}; /* owned by the fuzzer: do not unmap */
    }
    safetensors_close(&s);
    return 0;
}
