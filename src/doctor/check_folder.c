/* check_folder.c -- whether a folder is suitable for runs and checkpoints: durable writes, free
 * space. */
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "base/file.h"
#include "doctor/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MEMORY  "files here use memory and are lost at a reboot: use another folder for runs"
#define NETWORK "a network file system: the speed of checkpoints depends on other users"
#define VIRTUAL "a virtual file system: it cannot store files"

/* From linux/magic.h, and the headers of file systems outside the kernel. */
const struct filesystem *check_find_filesystem(uint32_t magic)
{
    static const struct filesystem kinds[] = {
        {0xEF53, "ext4", NULL},       {0x58465342, "xfs", NULL},      {0x9123683E, "btrfs", NULL},
        {0x2FC12FC1, "zfs", NULL},    {0xF2F52010, "f2fs", NULL},     {0x794C7630, "overlay", NULL},
        {0x0BD00BD0, "lustre", NULL}, {0x47504653, "gpfs", NULL},     {0x19830326, "beegfs", NULL},
        {0x00C36400, "ceph", NULL},   {0x01021994, "tmpfs", MEMORY},  {0x858458F6, "ramfs", MEMORY},
        {0x6969, "nfs", NETWORK},     {0xFE534D42, "smb", NETWORK},   {0xFF534D42, "cifs", NETWORK},
        {0x01021997, "9p", NETWORK},  {0x65735546, "fuse", NETWORK},  {0x5346414F, "afs", NETWORK},
        {0x9FA0, "proc", VIRTUAL},    {0x62656572, "sysfs", VIRTUAL},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].magic == magic) return &kinds[i];
    return NULL;
}

static void check_kind(struct findings *f, const char *path)
{
    struct statfs s;
    if (statfs(path, &s) != 0) return;
    const struct filesystem *kind = check_find_filesystem((uint32_t)s.f_type);
    if (kind)
        findings_add(f, "file system", "%s", kind->name);
    else
        findings_add(f, "file system", "unknown type 0x%X", (unsigned)s.f_type);
    if (kind && kind->advice) findings_warn(f, "%s", kind->advice);
}

static void check_free_space(struct findings *f, const char *path)
{
    enum { MIN_GIB = 10, MIN_FILES = 1000 };
    struct statvfs s;
    double gib = 1 << 30;
    if (statvfs(path, &s) != 0) return;
    double available = (double)s.f_bavail * (double)s.f_frsize / gib;
    findings_add(f, "free space", "%.1f GiB of %.1f GiB", available,
                 (double)s.f_blocks * (double)s.f_frsize / gib);
    if (available < MIN_GIB)
        findings_warn(f,
                      "free some: a checkpoint takes 12 bytes per parameter, 16 with a moving "
                      "average (96 or 128 GB for 8B parameters); the run keeps "
                      "checkpoint.keep_latest_k of them (0: all), and one more while it is saved");
    if (s.f_files && s.f_favail < MIN_FILES)
        findings_warn(f, "only %llu more files can be created", (unsigned long long)s.f_favail);
}

/* Writes a file as checkpoints do: fsync, rename into place, fsync the folder. */
static enum status time_durable_write(const char *path, double *seconds)
{
    enum { BYTES = 4 << 20 };
    char name[64];
    snprintf(name, sizeof name, ".llamero-doctor-%ld", (long)getpid());
    char *file = file_join(path, name);
    void *bytes = heap(BYTES);
    double begin = clock_monotonic_s();
    enum status st = file_write(file, bytes, BYTES);
    *seconds = clock_monotonic_s() - begin;
    if (!st && unlink(file) != 0) st = FAILURE(IO, "%s: %s", file, strerror(errno));
    free(bytes);
    free(file);
    return st;
}

void check_folder(struct findings *f, const char *path)
{
    double seconds;
    enum status st = file_require_folder(path);
    if (st) {
        findings_fail(f, "folder", st, "name an existing folder, in which runs will be saved");
        return;
    }
    check_kind(f, path);
    check_free_space(f, path);
    st = time_durable_write(path, &seconds);
    if (st) {
        findings_fail(f, "writing", st, "runs require a folder that this user can write to");
        return;
    }
    findings_add(f, "writing", "4 MiB written, synced (fsync) and renamed in %.1f ms",
                 seconds * 1e3);
    if (seconds > 1)
        findings_warn(f, "slow: set checkpoint.async_mode = \"async\" to save checkpoints in the "
                         "background");
}
