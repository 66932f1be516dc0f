// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include "base/text.h"

#include <limits.h>
#include <omp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static cpu_set_t given; /* the affinity mask at start; written before threads start */
static int num_given;   /* 0: the host has more cores than a cpu_set_t; then nothing is pinned */

__attribute__((constructor)) static void save_affinity(void)
{
    if (sched_getaffinity(0, sizeof given, &given) == 0) num_given = CPU_COUNT(&given);
}

int thread_cores(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return num_given ? num_given : online > 0 ? (int)online : 1;
}

void thread_core_mask(unsigned char set[THREAD_CORE_BYTES])
{
    memset(set, 0, THREAD_CORE_BYTES);
    for (unsigned core = 0; num_given && core < 8 * THREAD_CORE_BYTES && core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &given)) set[core / 8] |= (unsigned char)(1u << core % 8);
}

void thread_bind(const unsigned char set[THREAD_CORE_BYTES])
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (unsigned core = 0; core < 8 * THREAD_CORE_BYTES && core < CPU_SETSIZE; core++)
        if (set[core / 8] >> core % 8 & 1) CPU_SET(core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores)) return; /* affects only speed */
    given = cores, num_given = CPU_COUNT(&given);
}

void thread_pin(int n)
{
    if (!num_given) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; n >= 0 && core < CPU_SETSIZE; core++)
        if (CPU_ISSET((size_t)core, &given) && n-- == 0) CPU_SET((size_t)core, &one);
    /* Best effort: pinning affects only speed. */
    sched_setaffinity(0, sizeof one, CPU_COUNT(&one) ? &one : &given);
}

void thread_limit_spinning(char **argv)
{
    char path[PATH_MAX];
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    if (len < 0) return;
    path[len] = 0;
    if (setenv("GOMP_SPINCOUNT", THREAD_SPINS, 1)) return;
    execv(path, argv); /* returns only if it fails: then the default stands */
}

struct thread_start_args {
    void *(*run)(void *);
    void *argument;
    bool is_background;
};

static void *thread_main(void *context)
{
    enum { BACKGROUND_NICE = 10 };
    struct thread_start_args s = *(struct thread_start_args *)context;
    free(context);
    thread_pin(-1); /* the creating thread may be pinned */
    if (s.is_background) setpriority(PRIO_PROCESS, (id_t)gettid(), BACKGROUND_NICE);
    if (s.is_background) omp_set_num_threads(1); /* the cores are those of the compute threads */
    return s.run(s.argument);
}

static enum status start_thread(pthread_t *thread, struct thread_start_args args)
{
    struct thread_start_args *s = heap(sizeof *s);
    *s = args;
    int bad = pthread_create(thread, NULL, thread_main, s);
    if (!bad) return STATUS_OK;
    free(s);
    FAIL(IO, "cannot create a thread: %s", strerror(bad));
}

enum status thread_start_background(pthread_t *thread, void *(*run)(void *), void *argument)
{
    TRY(start_thread(thread, (struct thread_start_args){run, argument, true}));
    return STATUS_OK;
}

enum status thread_start_foreground(pthread_t *thread, void *(*run)(void *), void *argument)
{
    TRY(start_thread(thread, (struct thread_start_args){run, argument, false}));
    return STATUS_OK;
}
