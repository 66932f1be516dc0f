/* meta.c -- fuzzes the reader of Meta's checkpoints, with one or two shards: any bytes must yield
 * readable tensors or a clean error.
 *
 * The first two bytes give the length of the first shard's pickle, which follows; any rest is the
 * second shard's: see archive.h. */
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/meta.h"

#include "fuzz/archive.h"
#include "fuzz/folder.h"
#include "fuzz/tensor_slices.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int fds[2];
    static const struct model_shape shape = {.G = 2, .K = 4};
    unsigned char archive[ARCHIVE_BYTES];
    struct tensor_slices p;
    char path[96];
    if (len < 2) return 0;
    size_t first = bytes[0] | (size_t)bytes[1] << 8;
    bytes += 2, len -= 2;
    bool is_single = first >= len;
    if (is_single) first = len;
    archive_make(archive, bytes, first);
    folder_put(&fds[0], "consolidated.00.pth", archive, sizeof archive);
    if (!is_single) {
        archive_make(archive, bytes + first, len - first);
        folder_put(&fds[1], "consolidated.01.pth", archive, sizeof archive);
    }
    snprintf(path, sizeof path, "%s%s", folder(), is_single ? "/consolidated.00.pth" : "");
    if (!meta_open(&p, path, len & 1 ? &shape : NULL)) {
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    return 0;
}
