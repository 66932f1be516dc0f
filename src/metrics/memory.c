// SPDX-License-Identifier: Apache-2.0
#include "metrics/memory.h"

#include "tensor/device.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Reads the start of a file in /proc or /sys as a string. */
static bool read_start(const char *path, char *bytes, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, bytes, size - 1);
    close(fd);
    bytes[n > 0 ? n : 0] = 0;
    return n > 0;
}

int64_t memory_parse_field(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, len) && (line[len] == ':' || line[len] == ' ')) {
            char *end;
            long long value = strtoll(line + len + 1, &end, 10);
            return end == line + len + 1 || value < 0 ? -1 : value;
        }
    }
    return -1;
}

int64_t memory_peak_bytes(void)
{
    /* VmHWM first: ru_maxrss survives exec, so it may include the peak of the parent. */
    char status[4096];
    int64_t kib = read_start("/proc/self/status", status, sizeof status)
                      ? memory_parse_field(status, "VmHWM")
                      : -1;
    struct rusage used;
    if (kib < 0 && getrusage(RUSAGE_SELF, &used) == 0) kib = used.ru_maxrss;
    return kib < 0 ? 0 : kib * 1024;
}

int64_t memory_resident_bytes(void)
{
    char status[4096];
    int64_t kib = read_start("/proc/self/status", status, sizeof status)
                      ? memory_parse_field(status, "VmRSS")
                      : -1;
    return kib < 0 ? memory_peak_bytes() : kib * 1024;
}

/* The files of a cgroup's folder, and the fields of memory.stat with its page cache. */
struct cgroup_files {
    const char *limit, *usage, *inactive, *active;
};
static const struct cgroup_files cgroup_v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                              "total_inactive_file", "total_active_file"};
static const struct cgroup_files cgroup_v2 = {"memory.max", "memory.current", "inactive_file",
                                              "active_file"};

/* Reads a file of the folder `root``group` as a string. */
static bool read_of_group(const char *root, const char *group, const char *file, char *bytes,
                          size_t size)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s/%s", root, group, file);
    return n > 0 && (size_t)n < sizeof path && read_start(path, bytes, size);
}

/* What the group's processes use, without page cache; 0: unknown. */
static int64_t used_by_group(const struct cgroup_files *files, const char *root, const char *group)
{
    char usage[64], stat[8192];
    if (!read_of_group(root, group, files->usage, usage, sizeof usage)) return 0;
    int64_t used = strtoll(usage, NULL, 10);
    if (!read_of_group(root, group, "memory.stat", stat, sizeof stat)) return used;
    int64_t inactive = memory_parse_field(stat, files->inactive);
    int64_t active = memory_parse_field(stat, files->active);
    used -= (inactive > 0 ? inactive : 0) + (active > 0 ? active : 0);
    return used > 0 ? used : 0;
}

int64_t memory_cgroup_limit(int version, const char *root, char *group, bool left, int64_t lowest)
{
    const struct cgroup_files *files = version == 1 ? &cgroup_v1 : &cgroup_v2;
    for (;;) {
        char text[64], *end;
        if (read_of_group(root, group, files->limit, text, sizeof text)) {
            long long limit = strtoll(text, &end, 10); /* "max": no limit */
            bool limits = end != text && limit > 0;
            if (limits && left) limit -= used_by_group(files, root, group);
            if (limits && limit < lowest) lowest = limit > 0 ? limit : 0;
        }
        char *slash = strrchr(group, '/');
        if (!slash) return lowest;
        *slash = 0;
    }
}

/* The lowest of `lowest` and the limits of this process's groups. */
static int64_t limit_by_groups(bool left, int64_t lowest)
{
    char groups[4096], one[PATH_MAX] = "/", two[PATH_MAX] = "/";
    /* Lines are "number:controllers:/path"; cgroup v2 has number 0 and no controllers. */
    if (read_start("/proc/self/cgroup", groups, sizeof groups)) {
        char *rest = groups;
        for (char *line; (line = strsep(&rest, "\n"));) {
            char *path = strchr(line, ':');
            path = path ? strchr(path + 1, ':') : NULL;
            if (!path) continue;
            if (!strncmp(line, "0::", 3))
                snprintf(two, sizeof two, "%s", path + 1);
            else if (memmem(line, (size_t)(path - line), ":memory", 7))
                snprintf(one, sizeof one, "%s", path + 1);
        }
    }
    lowest = memory_cgroup_limit(2, "/sys/fs/cgroup", two, left, lowest);
    return memory_cgroup_limit(1, "/sys/fs/cgroup/memory", one, left, lowest);
}

int64_t memory_total_bytes(void)
{
    return limit_by_groups(false,
                           (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE));
}

int64_t memory_available_bytes(void)
{
    char info[4096];
    int64_t kib = read_start("/proc/meminfo", info, sizeof info)
                      ? memory_parse_field(info, "MemAvailable")
                      : -1;
    return limit_by_groups(true, kib < 0 ? memory_total_bytes() : kib * 1024);
}

enum status memory_most_used(struct queue *queue, const struct comm *world, int64_t *used)
{
    size_t total, in_use = (size_t)memory_peak_bytes();
    if (queue_device_allocator(queue)) /* on every rank or on none */
        TRY(comm_agree(world, queue_memory_info(queue, &total, &in_use)));
    *used = (int64_t)in_use;
    TRY(comm_all_reduce_int64(world, REDUCE_MAX, used, 1));
    return STATUS_OK;
}
