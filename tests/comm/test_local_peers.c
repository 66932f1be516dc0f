// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "comm/local_peers.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Two ranks: this process, and a child that ends by `signal`, or with exit code 3 if it is 0. */
struct two_processes {
    struct rank_identity who[2];
    struct local_peers *peers;
    pid_t child;
};

static void start(struct two_processes *t, bool ends_on_purpose)
{
    int ready[2];
    CHECK(pipe(ready) == 0);
    local_peers_identify(&t->who[0]);
    t->child = fork();
    CHECK(t->child >= 0);
    if (!t->child) {
        local_peers_identify(&t->who[1]);
        activity_begin();
        activity_set_step(9);
        activity_start_collective(1, 100, 2);
        if (ends_on_purpose) activity_set_ending();
        if (write(ready[1], &t->who[1], sizeof t->who[1]) < 0) _exit(1);
        pause();
        _exit(3);
    }
    CHECK(read(ready[0], &t->who[1], sizeof t->who[1]) == sizeof t->who[1]);
    close(ready[0]), close(ready[1]);
    t->peers = local_peers_make(t->who, 0, 2);
}

/* Kernels before Linux 5.3, and some sandboxes, have no pidfds. */
static void skip_without_pidfds(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd < 0) skip();
    close(fd);
}

static void wait_for_death(struct two_processes *t, int *rank, int *status, bool *ends)
{
    while (!local_peers_find_death(t->peers, rank, status, ends)) poll(NULL, 0, 1);
}

TEST(local_peers_tells_how_a_process_ended)
{
    struct two_processes t;
    int rank = -1, status = 0;
    bool ends = true;
    struct activity a;
    skip_without_pidfds();
    start(&t, false);
    CHECK(!local_peers_find_death(t.peers, &rank, &status, &ends));
    CHECK(strchr("SRD", local_peers_process_state(t.peers, 1)));
    CHECK(!local_peers_process_state(t.peers, 0));
    kill(t.child, SIGTERM);
    wait_for_death(&t, &rank, &status, &ends);
    CHECK(rank == 1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM && !ends);
    CHECK(!local_peers_process_state(t.peers, 1));
    CHECK(!local_peers_find_death(t.peers, &rank, &status, &ends));
    CHECK(waitpid(t.child, NULL, 0) == t.child);
    CHECK(local_peers_read_activity(t.peers, 1, &a)); /* also of a process that is gone */
    CHECK(a.step == 9 && a.collectives == 1 && a.bytes == 100 && a.ranks == 2);
    local_peers_free(t.peers);
}

TEST(local_peers_knows_a_process_that_ends_on_purpose)
{
    struct two_processes t;
    int rank, status;
    bool ends = false;
    skip_without_pidfds();
    start(&t, true);
    kill(t.child, SIGKILL);
    wait_for_death(&t, &rank, &status, &ends);
    CHECK(ends);
    CHECK(waitpid(t.child, NULL, 0) == t.child);
    local_peers_free(t.peers);
}

TEST(local_peers_knows_a_stopped_process)
{
    struct two_processes t;
    start(&t, false);
    kill(t.child, SIGSTOP);
    while (local_peers_process_state(t.peers, 1) != 'T') poll(NULL, 0, 1);
    kill(t.child, SIGKILL);
    CHECK(waitpid(t.child, NULL, 0) == t.child);
    local_peers_free(t.peers);
}

TEST(local_peers_ignores_processes_of_another_kernel)
{
    struct rank_identity who[2];
    struct activity a;
    local_peers_identify(&who[0]);
    who[1] = who[0];
    who[1].kernel++;
    struct local_peers *p = local_peers_make(who, 0, 2);
    CHECK(!local_peers_process_state(p, 1) && !local_peers_read_activity(p, 1, &a));
    local_peers_free(p);
    local_peers_free(NULL);
}
