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
        if (!strncmp(line, name, len) && line[len] == ':') {
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

/* The lowest limit of a cgroup and its ancestors; truncates `group` while walking up. */
static int64_t lowest_limit(const char *root, char *group, const char *file, int64_t lowest)
{
    for (;;) {
        char path[PATH_MAX], text[64], *end;
        int n = snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        if (n > 0 && (size_t)n < sizeof path && read_start(path, text, sizeof text)) {
            long long limit = strtoll(text, &end, 10); /* "max": no limit */
            if (end != text && limit > 0 && limit < lowest) lowest = limit;
        }
        char *slash = strrchr(group, '/');
        if (!slash) return lowest;
        *slash = 0;
    }
}

int64_t memory_total_bytes(void)
{
    int64_t lowest = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    char groups[4096], v1[PATH_MAX] = "/", v2[PATH_MAX] = "/";
    /* Lines are "number:controllers:/path"; cgroup v2 has number 0 and no controllers. */
    if (read_start("/proc/self/cgroup", groups, sizeof groups)) {
        char *rest = groups;
        for (char *line; (line = strsep(&rest, "\n"));) {
            char *path = strchr(line, ':');
            path = path ? strchr(path + 1, ':') : NULL;
            if (!path) continue;
            if (!strncmp(line, "0::", 3))
                snprintf(v2, sizeof v2, "%s", path + 1);
            else if (memmem(line, (size_t)(path - line), ":memory", 7))
                snprintf(v1, sizeof v1, "%s", path + 1);
        }
    }
    lowest = lowest_limit("/sys/fs/cgroup", v2, "memory.max", lowest);
    return lowest_limit("/sys/fs/cgroup/memory", v1, "memory.limit_in_bytes", lowest);
}

int64_t memory_available_bytes(void)
{
    char info[4096];
    int64_t total = memory_total_bytes();
    int64_t kib = read_start("/proc/meminfo", info, sizeof info)
                      ? memory_parse_field(info, "MemAvailable")
                      : -1;
    return kib < 0 || kib * 1024 > total ? total : kib * 1024;
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
