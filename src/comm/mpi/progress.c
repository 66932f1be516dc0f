// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/progress.h"

#include "base/text.h"
#include "base/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

/* How the thread spends its time while nothing happens: for somebody who waits it asks again at
 * once, some thousand times; else, and from then on, it sleeps longer and longer. */
enum { EAGER_ROUNDS = 2000, LEAST_SLEEP_NS = 20000, MOST_SLEEP_NS = 200000 };
enum { BACKGROUND_SLEEP_NS = 200000000 }; /* with nothing but background jobs */

struct progress {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, over; /* something for the thread to do; a job is over */
    struct job *started;       /* since the thread last looked; oldest first */
    int num_waiting;
    bool is_closing;
    struct failure failure;
    /* The thread's own. */
    struct job *under_way;
    int rounds; /* without anything happening */
    long sleep_ns;
};

static void append(struct job **list, struct job *jobs)
{
    while (*list) list = &(*list)->next;
    *list = jobs;
}

/* A step of every job; gives the jobs that are over. */
static struct job *step_all(struct progress *p)
{
    struct job *over = NULL;
    for (struct job **at = &p->under_way; *at;) {
        struct job *job = *at;
        bool is_over = false;
        enum status st = p->failure.status;
        if (!st) st = failure_keep(&p->failure, job->step(job, &is_over));
        if (!st && !is_over) {
            at = &job->next;
            continue;
        }
        *at = job->next, job->next = NULL;
        append(&over, job);
    }
    return over;
}

static bool is_idle(const struct progress *p)
{
    const struct job *job = p->under_way;
    while (job && job->is_background) job = job->next;
    return !job && !p->num_waiting;
}

/* With the lock held, and let go meanwhile. */
static void pause_a_little(struct progress *p)
{
    if (p->num_waiting && p->rounds++ < EAGER_ROUNDS) {
        pthread_mutex_unlock(&p->lock);
        sched_yield();
        pthread_mutex_lock(&p->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += is_idle(p) ? BACKGROUND_SLEEP_NS : p->sleep_ns;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    p->sleep_ns = 2 * p->sleep_ns < MOST_SLEEP_NS ? 2 * p->sleep_ns : MOST_SLEEP_NS;
    pthread_cond_timedwait(&p->work, &p->lock, &until);
}

static void *run(void *context)
{
    struct progress *p = context;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* or every sleep takes 50 us more */
    pthread_mutex_lock(&p->lock);
    while (!p->is_closing) {
        bool is_news = p->started != NULL;
        append(&p->under_way, p->started);
        p->started = NULL;
        if (!p->under_way) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        struct job *over = step_all(p);
        pthread_mutex_lock(&p->lock);
        if (over) pthread_cond_broadcast(&p->over);
        if (over || is_news) p->rounds = 0, p->sleep_ns = LEAST_SLEEP_NS;
        for (struct job *next; over; over = next) {
            next = over->next;
            over->has_failed = p->failure.status != STATUS_OK;
            over->is_over = true; /* from here on it is its starter's */
        }
        if (p->under_way && !p->started && !p->is_closing) pause_a_little(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum status progress_open(struct progress **out)
{
    struct progress *p = heap(sizeof *p);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, &clock);
    pthread_cond_init(&p->over, NULL);
    pthread_condattr_destroy(&clock);
    p->sleep_ns = LEAST_SLEEP_NS;
    enum status st = thread_start_equal(&p->thread, run, p);
    *out = st ? NULL : p;
    if (st) free(p);
    TRY(st);
    return STATUS_OK;
}

void progress_close(struct progress *p)
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

void progress_start(struct progress *p, struct job *job)
{
    job->is_over = false, job->next = NULL;
    pthread_mutex_lock(&p->lock);
    append(&p->started, job);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

const struct failure *progress_wait(struct progress *p, struct job *job)
{
    pthread_mutex_lock(&p->lock);
    if (!job->is_over) {
        p->num_waiting++;
        pthread_cond_signal(&p->work); /* it need not sleep any longer */
        while (!job->is_over) pthread_cond_wait(&p->over, &p->lock);
        p->num_waiting--;
    }
    bool has_failed = job->has_failed;
    pthread_mutex_unlock(&p->lock);
    return has_failed ? &p->failure : NULL;
}
