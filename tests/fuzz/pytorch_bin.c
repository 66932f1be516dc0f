/* pytorch_bin.c -- any bytes as a Hugging Face folder of before safetensors, or as Meta's: tensors
 * of a model that lie in it, or a clear refusal.
 *
 * The first two bytes say how many of the others are the index's, and params.json's; the rest is
 * the file "f.bin", pytorch_model.bin and consolidated.00.pth. */
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pytorch_bin.h"
#include "checkpoint/meta.h"
#include "checkpoint/params_json.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { MOST_READ = 4096 };
#define INDEX "pytorch_model.bin.index.json"

/* In memory, where the system has files that are. */
static char folder[64];

static void remove_folder(void) { file_remove_tree(folder); }

static void make_folder(void)
{
    const char *root = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(folder, sizeof folder, "%s/llamero-fuzz-XXXXXX", root);
    BUG_IF(!mkdtemp(folder));
    atexit(remove_folder);
}

static void link_to(const char *from, const char *to)
{
    char *path = file_join(folder, to);
    BUG_IF(symlink(from, path));
    free(path);
}

/* Without the fsync of file_write. */
static void put(const char *name, const uint8_t *bytes, size_t len)
{
    char *path = file_join(folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    BUG_IF(fd < 0 || write(fd, bytes, len) != (ssize_t)len);
    close(fd);
    free(path);
}

static void use(struct patches *p)
{
    float room[MOST_READ];
    for (size_t i = 0; i < p->count; i++) {
        const struct patched *t = &p->tensors[i];
        uint64_t elements = (uint64_t)(t->rows * t->columns);
        patches_read(p, t, 0, elements < MOST_READ ? elements : MOST_READ, room);
        patches_read(p, t, elements ? elements - 1 : 0, elements != 0, room);
        if (elements) patches_forget(p, t, elements - 1, 1);
    }
    patches_release(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct model_shape shape;
    struct patches p;
    if (!folder[0]) {
        make_folder();
        link_to("f.bin", "pytorch_model.bin");
        link_to("f.bin", "consolidated.00.pth");
        link_to(INDEX, "params.json");
    }
    if (len < 2) return 0;
    size_t index = bytes[0] | (size_t)bytes[1] << 8;
    if (index > len - 2) index = len - 2;
    put(INDEX, bytes + 2, index);
    put("f.bin", bytes + 2 + index, len - 2 - index);
    char *at = file_join(folder, INDEX), *params = file_join(folder, "params.json");
    if (!pytorch_bin_open(&p, folder)) use(&p);
    if (!meta_open(&p, folder, NULL)) {
        params_json_read(params, &p, &shape);
        use(&p);
    }
    unlink(at);
    if (!pytorch_bin_open(&p, folder)) use(&p);
    free(at), free(params);
    return 0;
}
