/* torch.c -- fuzzes the torch.save reader: any ZIP archive and pickle must yield tensors within the
 * file, or a clean error.
 *
 * Input that does not begin like a ZIP archive is wrapped in one, as its pickle. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/torch.h"

#include "fuzz/archive.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* The first and the last byte of a tensor must be within the file. */
static void use(const struct torch_tensor *t, const uint8_t *bytes, size_t len)
{
    uint64_t last = 0, each = safetensors_dtype_bytes(t->dtype);
    for (int d = 0; d < t->num_dims; d++) {
        if (!t->shape[d]) return;
        last += (uint64_t)(t->shape[d] - 1) * (uint64_t)t->strides[d];
    }
    BUG_IF(t->data < bytes || t->data > bytes + len);
    BUG_IF((last + 1) * each > (uint64_t)(bytes + len - t->data));
}

static void open_archive(const uint8_t *bytes, size_t len)
{
    struct torch_archive a;
    struct torch_tensors t;
    enum status st = torch_archive_open(&a, bytes, len, "input");
    if (!st) st = torch_archive_tensors(&a, &t);
    for (size_t i = 0; !st && i < t.count; i++) use(&t.all[i], bytes, len);
    if (!st) torch_tensors_release(&t);
    if (!st && !torch_archive_references(&a, &t)) {
        for (size_t i = 0; i < t.count; i++) BUG_IF(!t.all[i].data && t.all[i].reference < 0);
        torch_tensors_release(&t);
    }
    for (size_t i = 0; i < a.zip.count; i++) {
        const struct zip_entry *e = &a.zip.entries[i];
        BUG_IF(e->data < bytes || e->size > (uint64_t)(bytes + len - e->data));
        zip_entry_crc_ok(e);
    }
    torch_archive_close(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len && bytes[0] == 'P') {
        open_archive(bytes, len);
        return 0;
    }
    unsigned char *archive =
        heap(ARCHIVE_BYTES); /* on the heap, so that ASan detects reads past the end */
    archive_make(archive, bytes, len);
    open_archive(archive, ARCHIVE_BYTES);
    free(archive);
    return 0;
}
