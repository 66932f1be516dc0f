// SPDX-License-Identifier: Apache-2.0
#include "metrics/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The start of a file of /proc or /sys, as a string. */
static bool peek(const char *path, char *bytes, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, bytes, size - 1);
    close(fd);
    bytes[n > 0 ? n : 0] = 0;
    return n > 0;
}

int64_t memory_field(const char *text, const char *name)
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
    /* Not ru_maxrss alone: that one survives exec, and then tells of the parent. */
    char status[4096];
    int64_t kib =
        peek("/proc/self/status", status, sizeof status) ? memory_field(status, "VmHWM") : -1;
    struct rusage used;
    if (kib < 0 && getrusage(RUSAGE_SELF, &used) == 0) kib = used.ru_maxrss;
    return kib < 0 ? 0 : kib * 1024;
}

int64_t memory_resident_bytes(void)
{
    char status[4096];
    int64_t kib =
        peek("/proc/self/status", status, sizeof status) ? memory_field(status, "VmRSS") : -1;
    return kib < 0 ? memory_peak_bytes() : kib * 1024;
}

/* The least limit of a control group and those above it; `group` is cut short on the way. */
static int64_t least_limit(const char *root, char *group, const char *file, int64_t least)
{
    for (;;) {
        char path[PATH_MAX], text[64], *end;
        int n = snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        if (n > 0 && (size_t)n < sizeof path && peek(path, text, sizeof text)) {
            long long limit = strtoll(text, &end, 10); /* "max" is no number */
            if (end != text && limit > 0 && limit < least) least = limit;
        }
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

int64_t memory_total_bytes(void)
{
    int64_t least = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    char groups[4096], v1[PATH_MAX] = "/", v2[PATH_MAX] = "/";
    /* Lines "number:controllers:/path"; version 2 has the number 0 and no controllers. */
    if (peek("/proc/self/cgroup", groups, sizeof groups)) {
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
    least = least_limit("/sys/fs/cgroup", v2, "memory.max", least);
    return least_limit("/sys/fs/cgroup/memory", v1, "memory.limit_in_bytes", least);
}

int64_t memory_available_bytes(void)
{
    char info[4096];
    int64_t total = memory_total_bytes();
    int64_t kib =
        peek("/proc/meminfo", info, sizeof info) ? memory_field(info, "MemAvailable") : -1;
    return kib < 0 || kib * 1024 > total ? total : kib * 1024;
}
