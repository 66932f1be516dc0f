/* pytorch_bin.c -- fuzzes the readers of pytorch_model.bin folders, of Meta's checkpoints, and of
 * NxD Training's for two ranks: any bytes must yield tensors within the file, or a clean error.
 *
 * The first two bytes give the length of the index, which is params.json as well.  The rest is
 * f.bin, alias pytorch_model.bin and consolidated.00.pth, if it begins like a ZIP archive, else the
 * pickle of an archive that becomes f.bin: see archive.h. */
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/pytorch_bin.h"
#include "checkpoint/interop/meta.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/interop/params_json.h"

#include "fuzz/archive.h"
#include "fuzz/folder.h"
#include "fuzz/tensor_slices.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define INDEX "pytorch_model.bin.index.json"

static void link_to(const char *from, const char *to)
{
    char *path = file_join(folder(), to);
    BUG_IF(symlink(from, path));
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int index_file, params_file, numbers_file;
    static bool is_linked;
    unsigned char archive[ARCHIVE_BYTES];
    static const struct model_shape small = {
        .V = 40, .D = 16, .L = 2, .H = 4, .G = 1, .K = 4, .F = 24};
    struct model_shape shape;
    struct tensor_slices p;
    if (!is_linked) {
        is_linked = true;
        link_to("f.bin", "pytorch_model.bin");
        link_to("f.bin", "consolidated.00.pth");
        link_to("f.bin", "tp_rank_00_pp_rank_00");
        link_to("f.bin", "tp_rank_01_pp_rank_00");
    }
    if (len < 2) return 0;
    size_t first = bytes[0] | (size_t)bytes[1] << 8;
    bytes += 2, len -= 2;
    if (first > len) first = len;
    folder_put(&params_file, "params.json", bytes, first);
    bool is_archive = first < len && bytes[first] == 'P';
    if (!is_archive) archive_make(archive, bytes + first, len - first);
    folder_put(&numbers_file, "f.bin", is_archive ? bytes + first : archive,
               is_archive ? len - first : sizeof archive);
    char *at = file_join(folder(), "params.json");
    if (!pytorch_bin_open(&p, folder(), &small)) {
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    if (!meta_open(&p, folder(), NULL)) {
        params_json_read(at, &p, NULL, &shape);
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    if (!nxdt_open(&p, folder(), &small)) {
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    folder_put(&index_file, INDEX, bytes, first);
    if (!pytorch_bin_open(&p, folder(), &small)) {
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    folder_drop(&index_file, INDEX);
    free(at);
    return 0;
}
