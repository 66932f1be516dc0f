/* dcp.c -- any bytes as a directory of torch.distributed.checkpoint: its .metadata and one file of
 * archives; weights, moments and steps of a model that lie in it, or a clear refusal.
 *
 * The first two bytes say how many of the others are .metadata's; the rest is the file "f". */
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dcp.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { MOST_READ = 4096 };

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

/* Without the fsync of file_write. */
static void put(const char *name, const uint8_t *bytes, size_t len)
{
    char *path = file_join(folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    BUG_IF(fd < 0 || write(fd, bytes, len) != (ssize_t)len);
    close(fd);
    free(path);
}

static void use(const struct patches *p)
{
    float room[MOST_READ];
    for (size_t i = 0; i < p->count; i++) {
        const struct patched *t = &p->tensors[i];
        uint64_t elements = (uint64_t)(t->rows * t->columns);
        patches_read(p, t, 0, elements < MOST_READ ? elements : MOST_READ, room);
        patches_read(p, t, elements ? elements - 1 : 0, elements != 0, room);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct model_shape shape = {.D = 4, .H = 1, .G = 1, .K = 4};
    struct patches p;
    struct torch_state state;
    struct text json = {0};
    if (!folder[0]) make_folder();
    if (len < 2) return 0;
    size_t metadata = bytes[0] | (size_t)bytes[1] << 8;
    if (metadata > len - 2) metadata = len - 2;
    put(".metadata", bytes + 2, metadata);
    put("f", bytes + 2 + metadata, len - 2 - metadata);
    if (!dcp_open(&p, folder, &shape)) {
        use(&p);
        patches_release(&p);
    }
    if (!dcp_open_moments(&p, folder, &shape, &state)) {
        BUG_IF(p.count && state.step < 0);
        torch_state_json(&state, &json);
        use(&p);
        patches_release(&p);
    }
    torch_state_release(&state);
    text_release(&json);
    return 0;
}
