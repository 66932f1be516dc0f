// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/progress.h"

#include "base/text.h"
#include "base/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

/* While no job advances: if a thread waits for one, poll so many rounds without sleeping;
 * otherwise, and after these, sleep between rounds, twice as long each time. */
enum { SPIN_ROUNDS = 2000, MIN_SLEEP_NS = 20000, MAX_SLEEP_NS = 200000 };
enum { BACKGROUND_SLEEP_NS = 200000000 }; /* with background jobs only */

struct progress_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, over;    /* there is work for the thread; a job is over */
    struct progress_job *started; /* not yet taken by the thread; oldest first */
    int num_waiting;
    bool is_closing;
    struct failure failure;
    /* Used by the thread only. */
    struct progress_job *pending;
    int idle_rounds; /* since a job was started or ended */
    long sleep_ns;
};

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

/* Called with the lock held; releases it while it waits. */
static void spin_or_sleep(struct progress_thread *p)
{
    if (p->num_waiting && p->idle_rounds++ < SPIN_ROUNDS) {
        pthread_mutex_unlock(&p->lock);
        sched_yield();
        pthread_mutex_lock(&p->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += has_background_only(p) ? BACKGROUND_SLEEP_NS : p->sleep_ns;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    p->sleep_ns = 2 * p->sleep_ns < MAX_SLEEP_NS ? 2 * p->sleep_ns : MAX_SLEEP_NS;
    pthread_cond_timedwait(&p->work, &p->lock, &until);
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
        if (!p->pending) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
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
        if (p->pending && !p->started && !p->is_closing) spin_or_sleep(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum status progress_open(struct progress_thread **out)
{
    struct progress_thread *p = heap(sizeof *p);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, &monotonic);
    pthread_cond_init(&p->over, NULL);
    pthread_condattr_destroy(&monotonic);
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
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->over);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void progress_start(struct progress_thread *p, struct progress_job *job)
{
    job->is_over = false, job->next = NULL;
    pthread_mutex_lock(&p->lock);
    append(&p->started, job);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

const struct failure *progress_wait(struct progress_thread *p, struct progress_job *job)
{
    pthread_mutex_lock(&p->lock);
    if (!job->is_over) {
        p->num_waiting++;
        pthread_cond_signal(&p->work); /* wakes the thread */
        while (!job->is_over) pthread_cond_wait(&p->over, &p->lock);
        p->num_waiting--;
    }
    bool has_failed = job->has_failed;
    pthread_mutex_unlock(&p->lock);
    return has_failed ? &p->failure : NULL;
}
