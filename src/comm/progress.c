// SPDX-License-Identifier: Apache-2.0
#include "comm/progress.h"

#include "base/text.h"
#include "base/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* While no job advances: if a thread waits for one, poll so many rounds without sleeping;
 * otherwise, and after these, sleep between rounds, twice as long each time. */
enum { SPIN_ROUNDS = 2000, MIN_SLEEP_NS = 20000, MAX_SLEEP_NS = 200000 };
enum { BACKGROUND_SLEEP_NS = 200000000 }; /* with background jobs only */
enum { RUNG_SLEEP_NS = 20000000 };        /* if a bell announces all that a job waits for */

struct progress_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over; /* a job is over */
    struct progress_bell own_bell, *bell;
    struct progress_job *started; /* not yet taken by the thread; oldest first */
    int num_waiting;
    bool is_closing;
    struct failure failure;
    /* Used by the thread only. */
    struct progress_job *pending;
    int idle_rounds; /* since a job was started or ended */
    long sleep_ns;
};

void progress_ring(struct progress_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->is_asleep))
        syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps until the bell is rung or has been since `rings` was read. */
static void sleep_until_rung(struct progress_bell *bell, uint32_t rings, long ns)
{
    const struct timespec most = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    atomic_store(&bell->is_asleep, 1);
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT, rings, ns < LONG_MAX ? &most : NULL, NULL, 0);
    atomic_store(&bell->is_asleep, 0);
}

static void append(struct progress_job **list, struct progress_job *jobs)
{
    while (*list) list = &(*list)->next;
    *list = jobs;
}

/* Takes a step of every pending job; returns the jobs that are over. */
static struct progress_job *step_all(struct progress_thread *p)
{
    struct progress_job *over = NULL;
    for (struct progress_job **at = &p->pending; *at;) {
        struct progress_job *job = *at;
        bool is_over = false;
        enum status st = job->is_background ? STATUS_OK : p->failure.status;
        if (!st) st = status_save(&p->failure, job->step(job, &is_over));
        if (!st && !is_over) {
            at = &job->next;
            continue;
        }
        *at = job->next, job->next = NULL;
        append(&over, job);
    }
    return over;
}

static bool has_background_only(const struct progress_thread *p)
{
    const struct progress_job *job = p->pending;
    while (job && job->is_background) job = job->next;
    return !job && !p->num_waiting;
}

/* Called with the lock held, which it releases.  `rings`: read before the last steps. */
static void spin_or_sleep(struct progress_thread *p, uint32_t rings)
{
    bool spins = p->num_waiting && p->idle_rounds++ < SPIN_ROUNDS;
    long ns = p->bell == &p->own_bell ? p->sleep_ns : RUNG_SLEEP_NS;
    if (has_background_only(p)) ns = BACKGROUND_SLEEP_NS;
    if (!p->pending) ns = LONG_MAX;
    pthread_mutex_unlock(&p->lock);
    if (spins)
        sched_yield();
    else
        sleep_until_rung(p->bell, rings, ns);
    pthread_mutex_lock(&p->lock);
    if (!spins) p->sleep_ns = 2 * p->sleep_ns < MAX_SLEEP_NS ? 2 * p->sleep_ns : MAX_SLEEP_NS;
}

static void *advance_jobs(void *context)
{
    struct progress_thread *p = context;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* the default adds 50 us to every sleep */
    pthread_mutex_lock(&p->lock);
    while (!p->is_closing) {
        bool has_started = p->started != NULL;
        append(&p->pending, p->started);
        p->started = NULL;
        uint32_t rings = atomic_load(&p->bell->rings);
        pthread_mutex_unlock(&p->lock);
        struct progress_job *over = step_all(p);
        pthread_mutex_lock(&p->lock);
        if (over) pthread_cond_broadcast(&p->over);
        if (over || has_started) p->idle_rounds = 0, p->sleep_ns = MIN_SLEEP_NS;
        for (struct progress_job *next; over; over = next) {
            next = over->next;
            over->has_failed = p->failure.status != STATUS_OK;
            over->is_over = true; /* from here on the job is the waiting thread's */
        }
        if (!p->started && !p->is_closing) spin_or_sleep(p, rings);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum status progress_open(struct progress_bell *bell, struct progress_thread **out)
{
    struct progress_thread *p = heap(sizeof *p);
    p->bell = bell ? bell : &p->own_bell;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->over, NULL);
    p->sleep_ns = MIN_SLEEP_NS;
    enum status st = thread_start_foreground(&p->thread, advance_jobs, p);
    *out = st ? NULL : p;
    if (st) free(p);
    TRY(st);
    return STATUS_OK;
}

void progress_close(struct progress_thread *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->is_closing = true;
    pthread_mutex_unlock(&p->lock);
    progress_ring(p->bell);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->over);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void progress_start(struct progress_thread *p, struct progress_job *job)
{
    job->is_over = false, job->next = NULL;
    pthread_mutex_lock(&p->lock);
    append(&p->started, job);
    pthread_mutex_unlock(&p->lock);
    progress_ring(p->bell);
}

const struct failure *progress_wait(struct progress_thread *p, struct progress_job *job)
{
    pthread_mutex_lock(&p->lock);
    if (!job->is_over) {
        p->num_waiting++;
        progress_ring(p->bell);
        while (!job->is_over) pthread_cond_wait(&p->over, &p->lock);
        p->num_waiting--;
    }
    bool has_failed = job->has_failed;
    pthread_mutex_unlock(&p->lock);
    return has_failed ? &p->failure : NULL;
}
