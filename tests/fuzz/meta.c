/* meta.c -- any bytes as Meta's checkpoint of two shards, or of one: tensors whose numbers can be
 * read, or a clear refusal.
 *
 * Two bytes say how long the first file's pickle is, which follows; the rest is the second's, where
 * there is one: see archive.h. */
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/meta.h"

#include "fuzz/archive.h"
#include "fuzz/folder.h"
#include "fuzz/patched.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int fds[2];
    static const struct model_shape shape = {.G = 2, .K = 4};
    unsigned char archive[ARCHIVE_BYTES];
    struct patches p;
    char path[96];
    if (len < 2) return 0;
    size_t first = bytes[0] | (size_t)bytes[1] << 8;
    bytes += 2, len -= 2;
    bool alone = first >= len;
    if (alone) first = len;
    archive_make(archive, bytes, first);
    folder_put(&fds[0], "consolidated.00.pth", archive, sizeof archive);
    if (!alone) {
        archive_make(archive, bytes + first, len - first);
        folder_put(&fds[1], "consolidated.01.pth", archive, sizeof archive);
    }
    snprintf(path, sizeof path, "%s%s", folder(), alone ? "/consolidated.00.pth" : "");
    if (!meta_open(&p, path, len & 1 ? &shape : NULL)) {
        patched_use(&p);
        patches_release(&p);
    }
    return 0;
}
