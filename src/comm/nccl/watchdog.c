// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/watchdog.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double poll_s = 0.05;
/* After a failure, how long a call of the library may take to return; and how long transfers in
 * flight may take to end when memory or their communicator is released.  Never more than a
 * transfer's own time limit. */
static const double grace_s = 5;

struct watchdog {
    struct queue *queue;
    double timeout_s;
    pthread_t thread;
    pthread_mutex_t calls; /* held during calls of the library; locked before `lock` */
    pthread_mutex_t lock;  /* protects the fields below */
    pthread_cond_t closing;
    bool is_closing;
    struct failure failure;            /* the first; never changes afterwards */
    const struct communicator *caller; /* a call of the library is being made; NULL: none */
    const char *call;                  /* what it does */
    double called_s;
    struct communicator **communicators; /* that it watches; owned */
    size_t num_communicators;
    struct tracked_transfer *in_flight, *spare;
};

/* "all_reduce of 4 float32 on rank 0 of 2 in group shard" */
static void describe(const struct tracked_transfer *t, char *text, size_t size)
{
    const struct communicator *c = t->communicator;
    snprintf(text, size, "%s of %zu %s on rank %d of %d in group %s",
             transfer_name(t->transfer.kind), t->transfer.count,
             transfer_element_name(&t->transfer), c->rank, c->size, c->name);
}

static enum status check_transfer(struct watchdog *w, struct tracked_transfer *t)
{
    bool begun = true;
    char what[256];
    if (t->is_over) return STATUS_OK;
    if (t->is_issued) TRY(side_stream_query(&t->done, &t->is_over));
    if (t->is_over) return STATUS_OK;
    if (!(t->begun_s > 0)) TRY(side_stream_query(&t->begun, &begun));
    if (!begun) return STATUS_OK;
    double now = clock_monotonic_s();
    if (!(t->begun_s > 0)) t->begun_s = now;
    if (!(now - t->begun_s > w->timeout_s)) return STATUS_OK;
    describe(t, what, sizeof what);
    FAIL(HANG, "%s timed out after %g s: a rank is gone, or has started another transfer", what,
         w->timeout_s);
}

static enum status check_call(const struct watchdog *w)
{
    const struct communicator *c = w->caller;
    if (!c || !(clock_monotonic_s() - w->called_s > w->timeout_s)) return STATUS_OK;
    FAIL(HANG,
         "%s on rank %d of %d in group %s timed out after %g s: a rank is gone, or does not take "
         "part",
         w->call, c->rank, c->size, c->name, w->timeout_s);
}

/* Called with the lock held. */
static enum status check_all(struct watchdog *w)
{
    for (struct tracked_transfer **at = &w->in_flight; *at;) {
        struct tracked_transfer *t = *at;
        TRY(check_transfer(w, t));
        if (!t->is_over || !t->is_waited_for) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        t->next = w->spare, w->spare = t;
    }
    for (size_t i = 0; i < w->num_communicators; i++)
        TRY(communicator_async_error(w->communicators[i]));
    TRY(check_call(w));
    return STATUS_OK;
}

static struct timespec time_after(int clock, double s)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += (time_t)s, t.tv_nsec += (long)((s - floor(s)) * 1e9);
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

/* Called with the lock held.  If the abort does not end, transfers hold up the device, and
 * every thread that waits for it, forever. */
static void abort_after_failure(struct watchdog *w)
{
    if (w->failure.status && !communicator_abort_all(w->communicators, w->num_communicators))
        activity_exit_after(status_restore(&w->failure));
}

/* `failure` is set, so no new call of the library begins. */
static void abort_all(struct watchdog *w)
{
    struct timespec deadline = time_after(CLOCK_REALTIME, fmin(grace_s, w->timeout_s));
    if (pthread_mutex_timedlock(&w->calls, &deadline))
        activity_exit_after(status_restore(&w->failure));
    pthread_mutex_lock(&w->lock);
    abort_after_failure(w);
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_unlock(&w->calls);
}

/* While another thread loads a kernel for the first time, CUDA's calls, also check_all's, may block
 * until the device's work has ended; HIP's may while another thread waits for the same event.  If a
 * transfer never ends, timeout_s has no effect then: the heartbeat, which calls neither, ends the
 * run. */
static void *watch(void *context)
{
    struct watchdog *w = context;
    enum status st = side_stream_set_device(w->queue);
    pthread_mutex_lock(&w->lock);
    while (!st && !w->is_closing) {
        st = check_all(w);
        struct timespec next = time_after(CLOCK_MONOTONIC, poll_s);
        if (!st) pthread_cond_timedwait(&w->closing, &w->lock, &next);
    }
    status_save(&w->failure, st);
    pthread_mutex_unlock(&w->lock);
    if (st) abort_all(w);
    return NULL;
}

enum status watchdog_open(struct watchdog **out, struct queue *queue, double timeout_s)
{
    struct watchdog *w = heap(sizeof *w);
    pthread_condattr_t monotonic;
    *w = (struct watchdog){.queue = queue, .timeout_s = timeout_s};
    pthread_mutex_init(&w->calls, NULL);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->closing, &monotonic);
    pthread_condattr_destroy(&monotonic);
    enum status st = thread_start_foreground(&w->thread, watch, w);
    if (st) free(w);
    TRY(st);
    *out = w;
    return STATUS_OK;
}

static void free_all(struct tracked_transfer *t)
{
    for (struct tracked_transfer *next; t; t = next) {
        next = t->next;
        side_stream_event_close(&t->begun), side_stream_event_close(&t->done);
        free(t);
    }
}

void watchdog_close(struct watchdog *w)
{
    pthread_mutex_lock(&w->lock);
    w->is_closing = true;
    pthread_cond_signal(&w->closing);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    BUG_IF(w->num_communicators);
    free(w->communicators);
    free_all(w->in_flight), free_all(w->spare);
    pthread_cond_destroy(&w->closing);
    pthread_mutex_destroy(&w->calls), pthread_mutex_destroy(&w->lock);
    free(w);
}

void watchdog_add(struct watchdog *w, struct communicator *c)
{
    pthread_mutex_lock(&w->lock);
    size_t count = w->num_communicators + 1;
    w->communicators = heap_grow(w->communicators, count, sizeof(struct communicator *));
    w->communicators[w->num_communicators++] = c;
    pthread_mutex_unlock(&w->lock);
}

static bool has_failed(struct watchdog *w)
{
    pthread_mutex_lock(&w->lock);
    bool failed = w->failure.status != STATUS_OK;
    pthread_mutex_unlock(&w->lock);
    return failed;
}

/* The next transfer in flight on the communicator, or with NULL on any, each only once. */
static struct tracked_transfer *next_unsettled(struct watchdog *w, const struct communicator *c)
{
    pthread_mutex_lock(&w->lock);
    struct tracked_transfer *t = w->in_flight;
    while (t && ((c && t->communicator != c) || t->is_settled)) t = t->next;
    if (t) t->is_settled = true;
    pthread_mutex_unlock(&w->lock);
    return t;
}

static enum status await_end(const struct tracked_transfer *t, double seconds)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    double until = clock_monotonic_s() + seconds;
    bool over = false;
    char what[256];
    for (;;) {
        TRY(side_stream_query(&t->done, &over));
        if (over) return STATUS_OK;
        if (clock_monotonic_s() >= until) break;
        nanosleep(&ms, NULL);
    }
    describe(t, what, sizeof what);
    FAIL(HANG,
         "%s was still in flight when memory or its group was released: a rank is gone, or has "
         "started another transfer",
         what);
}

/* Waits for the transfers in flight on the communicator, or with NULL on any; saves a failure if
 * they do not end. */
static void await_all(struct watchdog *w, const struct communicator *c)
{
    struct failure last = {0};
    enum status st = STATUS_OK;
    status_save(&last, STATUS_HANG); /* whatever its status: keeps the caller's message */
    for (struct tracked_transfer *t; (t = next_unsettled(w, c));) {
        bool waits = !c || t->is_waited_for; /* only this thread writes it */
        if (!st && !has_failed(w)) st = await_end(t, waits ? fmin(grace_s, w->timeout_s) : 0);
    }
    if (!st) return;
    pthread_mutex_lock(&w->lock);
    status_save(&w->failure, st);
    pthread_mutex_unlock(&w->lock);
    status_restore(&last);
}

void watchdog_settle(struct watchdog *w)
{
    await_all(w, NULL);
    pthread_mutex_lock(&w->lock);
    abort_after_failure(w);
    pthread_mutex_unlock(&w->lock);
}

void watchdog_remove(struct watchdog *w, struct communicator *c)
{
    await_all(w, c);
    pthread_mutex_lock(&w->lock);
    abort_after_failure(w);
    for (struct tracked_transfer *t = w->in_flight; t; t = t->next)
        if (t->communicator == c) t->is_over = t->is_waited_for = true;
    size_t at = 0;
    while (w->communicators[at] != c) at++;
    w->communicators[at] = w->communicators[--w->num_communicators];
    pthread_mutex_unlock(&w->lock);
}

enum status watchdog_check(struct watchdog *w, enum status status)
{
    return has_failed(w) ? status_restore(&w->failure) : status;
}

static void set_call(struct watchdog *w, const struct communicator *c, const char *call)
{
    pthread_mutex_lock(&w->lock);
    w->caller = c, w->call = call, w->called_s = clock_monotonic_s();
    pthread_mutex_unlock(&w->lock);
}

enum status watchdog_enter(struct watchdog *w, const struct communicator *c, const char *call)
{
    pthread_mutex_lock(&w->calls);
    enum status st = watchdog_check(w, STATUS_OK);
    if (st)
        pthread_mutex_unlock(&w->calls);
    else
        set_call(w, c, call);
    return st;
}

enum status watchdog_leave(struct watchdog *w, enum status status)
{
    set_call(w, NULL, NULL);
    pthread_mutex_unlock(&w->calls);
    return watchdog_check(w, status);
}

static enum status make_transfer(struct tracked_transfer **out)
{
    struct tracked_transfer *t = heap(sizeof *t);
    enum status st = STATUS_OK;
    TRY_OUT(side_stream_event_open(&t->begun));
    TRY_OUT(side_stream_event_open(&t->done));
    *out = t;
    return STATUS_OK;
out:
    free_all(t);
    return st;
}

enum status watchdog_acquire(struct watchdog *w, struct tracked_transfer **out)
{
    pthread_mutex_lock(&w->lock);
    struct tracked_transfer *t = w->spare;
    if (t) w->spare = t->next;
    pthread_mutex_unlock(&w->lock);
    if (!t) TRY(make_transfer(&t));
    *t = (struct tracked_transfer){.begun = t->begun, .done = t->done};
    *out = t;
    return STATUS_OK;
}

void watchdog_recycle(struct watchdog *w, struct tracked_transfer *t)
{
    pthread_mutex_lock(&w->lock);
    t->next = w->spare, w->spare = t;
    pthread_mutex_unlock(&w->lock);
}

void watchdog_track(struct watchdog *w, struct tracked_transfer *t)
{
    pthread_mutex_lock(&w->lock);
    t->next = w->in_flight, w->in_flight = t;
    pthread_mutex_unlock(&w->lock);
}

void watchdog_issued(struct watchdog *w, struct tracked_transfer *t, bool succeeded)
{
    pthread_mutex_lock(&w->lock);
    t->is_issued = succeeded;
    t->is_over = t->is_waited_for = !succeeded;
    pthread_mutex_unlock(&w->lock);
}

void watchdog_waited(struct watchdog *w, struct tracked_transfer *t)
{
    pthread_mutex_lock(&w->lock);
    t->is_waited_for = true;
    pthread_mutex_unlock(&w->lock);
}
