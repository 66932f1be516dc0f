/* folder.h -- in-memory files for readers that take paths: a temporary folder that is removed when
 * the process exits; tools/fuzz removes it after a crash. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder_path[64];

static void folder_remove(void) { file_remove_tree(folder_path); }

static inline const char *folder(void)
{
    if (folder_path[0]) return folder_path;
    const char *parent = getenv("FUZZ_FOLDER");
    if (!parent) parent = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    BUG_IF((size_t)snprintf(folder_path, sizeof folder_path, "%s/llamero-XXXXXX", parent) >=
           sizeof folder_path);
    BUG_IF(!mkdtemp(folder_path) || atexit(folder_remove));
    return folder_path;
}

/* Replaces the contents of a file in folder().  *fd is 0 at first, and stays open. */
static inline void folder_put(int *fd, const char *name, const void *bytes, size_t len)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    if (!*fd) *fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    /* In this order a file in memory keeps its pages. */
    BUG_IF(*fd < 0 || file_write_at(*fd, path, bytes, len, 0) || ftruncate(*fd, (off_t)len));
}

static inline void folder_drop(int *fd, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    BUG_IF(close(*fd) || unlink(path));
    *fd = 0;
}
