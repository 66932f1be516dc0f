// SPDX-License-Identifier: Apache-2.0
#include "comm/local_peers.h"

#include "base/checksum.h"
#include "base/host.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open /* headers before Linux 5.3 */
#define SYS_pidfd_open 434
#endif

struct local_peer {
    int rank, pid;
    const struct activity_record *activity; /* NULL: not available */
};

struct local_peers {
    int size;
    struct local_peer *peers;
    struct pollfd *fds; /* pidfds, by peer; -1: none, or the process has ended */
};

/* Reads the start of a file as a string. */
static void read_start(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, out, size - 1);
    out[len > 0 ? len : 0] = 0;
    if (fd >= 0) close(fd);
}

void local_peers_identify(struct rank_identity *own)
{
    struct stat s = {0};
    char boot[64];
    read_start("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    *own = (struct rank_identity){.pid = getpid(), .activity = activity_share()};
    host_name(own->host, sizeof own->host);
    /* Containers of one host may have the same names, and PIDs of their own. */
    if (!stat("/proc/self/ns/pid", &s))
        own->kernel = (uint64_t)s.st_ino << 32 | checksum_crc32c(0, boot, strlen(boot));
}

static int open_process(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

struct local_peers *local_peers_make(const struct rank_identity *who, int rank, int size)
{
    struct local_peers *p = heap(sizeof *p);
    p->peers = heap((size_t)size * sizeof *p->peers);
    p->fds = heap((size_t)size * sizeof *p->fds);
    for (int r = 0; r < size; r++) {
        if (r == rank || !who[r].kernel || who[r].kernel != who[rank].kernel) continue;
        int at = p->size++;
        p->fds[at] = (struct pollfd){.fd = open_process(who[r].pid), .events = POLLIN};
        p->peers[at] = (struct local_peer){r, who[r].pid, NULL};
        if (who[r].activity >= 0) p->peers[at].activity = activity_map(who[r].pid, who[r].activity);
    }
    return p;
}

void local_peers_free(struct local_peers *p)
{
    if (!p) return;
    for (int i = 0; i < p->size; i++) {
        if (p->fds[i].fd >= 0) close(p->fds[i].fd);
        activity_unmap(p->peers[i].activity);
    }
    free(p->peers), free(p->fds);
    free(p);
}

/* A field of /proc/PID/stat, counted from 0 after the command's name, which may have spaces. */
static const char *find_stat_field(int pid, int index, char *line, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    read_start(path, line, size);
    const char *at = strrchr(line, ')');
    for (; at && index >= 0; index--) at = strchr(at + 1, ' ');
    return at ? at + 1 : NULL;
}

/* linux/pidfd.h of Linux 6.15; older headers lack it. */
struct exit_info {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code;
};
#define GET_EXIT_INFO _IOC(_IOC_READ | _IOC_WRITE, 0xff, 11, sizeof(struct exit_info))
#define EXIT_INFO     (UINT64_C(1) << 3)

/* How the process ended. */
static int exit_status(int pidfd, int pid)
{
    enum { STATE, EXIT_CODE = 49 };
    char line[1024];
    struct exit_info info = {.mask = EXIT_INFO};
    const char *state = find_stat_field(pid, STATE, line, sizeof line);
    const char *code =
        state && *state == 'Z' ? find_stat_field(pid, EXIT_CODE, line, sizeof line) : NULL;
    if (code) return (int)strtol(code, NULL, 10);
    bool knows = !ioctl(pidfd, GET_EXIT_INFO, &info) && info.mask & EXIT_INFO;
    return knows ? info.exit_code : -1;
}

bool local_peers_find_death(struct local_peers *p, int *rank, int *status, bool *ends)
{
    if (poll(p->fds, (nfds_t)p->size, 0) <= 0) return false;
    for (int i = 0; i < p->size; i++) {
        struct activity a;
        if (p->fds[i].fd < 0 || !(p->fds[i].revents & POLLIN)) continue;
        *rank = p->peers[i].rank;
        *status = exit_status(p->fds[i].fd, p->peers[i].pid);
        *ends = local_peers_read_activity(p, *rank, &a) && a.is_ending;
        close(p->fds[i].fd);
        p->fds[i].fd = -1; /* poll ignores it */
        return true;
    }
    return false;
}

static const struct local_peer *find(const struct local_peers *p, int rank)
{
    int i = 0;
    while (i < p->size && p->peers[i].rank != rank) i++;
    return i < p->size ? &p->peers[i] : NULL;
}

bool local_peers_read_activity(const struct local_peers *p, int rank, struct activity *out)
{
    const struct local_peer *peer = find(p, rank);
    if (!peer || !peer->activity) return false;
    activity_read(peer->activity, out);
    return true;
}

char local_peers_process_state(void *context, int rank)
{
    char line[1024];
    const struct local_peer *peer = find(context, rank);
    const char *state = peer ? find_stat_field(peer->pid, 0, line, sizeof line) : NULL;
    return state && !strchr("ZXx", *state) ? *state : 0;
}
