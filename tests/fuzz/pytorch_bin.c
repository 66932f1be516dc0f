/* pytorch_bin.c -- fuzzes the readers of pytorch_model.bin folders, of Meta's checkpoints, and of
 * NxD Training's for two ranks: any bytes must yield tensors within the file, or a clean error.
 *
 * The two highest bits of the first two bytes select the reader, the others are the length of the
 * index, which is params.json as well.  The rest is f.bin, alias pytorch_model.bin and
 * consolidated.00.pth, if it begins like a ZIP archive, else the pickle of an archive that becomes
 * f.bin: see archive.h. */
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

static const struct model_shape small = {.V = 40, .D = 16, .L = 2, .H = 4, .G = 1, .K = 4, .F = 24};

static void link_to(const char *from, const char *to)
{
    char *path = file_join(folder(), to);
    BUG_IF(symlink(from, path));
    free(path);
}

static void link_all(void)
{
    link_to("f.bin", "pytorch_model.bin");
    link_to("f.bin", "consolidated.00.pth");
    link_to("f.bin", "tp_rank_00_pp_rank_00");
    link_to("f.bin", "tp_rank_01_pp_rank_00");
}

static void use(enum status st, struct tensor_slices *p)
{
    if (st) return;
    tensor_slices_use(p);
    tensor_slices_release(p);
}

/* With the index if it is not empty, else the single file. */
static void read_pytorch_bin(const uint8_t *index, size_t len)
{
    static int file;
    struct tensor_slices p;
    if (len) folder_put(&file, INDEX, index, len);
    use(pytorch_bin_open(&p, folder(), &small), &p);
    if (len) folder_drop(&file, INDEX);
}

static void read_meta(const uint8_t *params, size_t len)
{
    static int file;
    static char *path;
    struct tensor_slices p;
    struct model_shape shape;
    if (!path) path = file_join(folder(), "params.json");
    if (meta_open(&p, folder(), NULL)) return;
    folder_put(&file, "params.json", params, len);
    params_json_read(path, &p, NULL, &shape);
    use(STATUS_OK, &p);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int file;
    static bool is_linked;
    unsigned char archive[ARCHIVE_BYTES];
    struct tensor_slices p;
    if (!is_linked) link_all();
    is_linked = true;
    if (len < 2) return 0;
    size_t first = bytes[0] | (size_t)(bytes[1] & 0x3f) << 8;
    int reader = bytes[1] >> 6;
    bytes += 2, len -= 2;
    if (first > len) first = len;
    bool is_archive = first < len && bytes[first] == 'P';
    if (!is_archive) archive_make(archive, bytes + first, len - first);
    folder_put(&file, "f.bin", is_archive ? bytes + first : archive,
               is_archive ? len - first : sizeof archive);
    if (reader == 0)
        read_pytorch_bin(bytes, first);
    else if (reader == 1)
        read_meta(bytes, first);
    else
        use(nxdt_open(&p, folder(), &small), &p);
    return 0;
}
