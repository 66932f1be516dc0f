// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/guard.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static const double period_s = 0.05;
/* A call of the library that lasts longer, or as long as a transfer may, waits for a rank and is to
 * be cut off, too; and so is what is not over so long after its link is of no use any more. */
static const double call_s = 5;

struct guarded {
    struct link *link;
    struct guarded *next;
};

struct guard {
    struct queue *on;
    double most_s;
    pthread_t thread;
    pthread_mutex_t calls; /* held while the library is called; taken before `lock` */
    pthread_mutex_t lock;  /* of what follows */
    pthread_cond_t closing;
    bool gives_up; /* the queue's thread's: a rank is not there any more */
    bool is_closing;
    struct failure failure;
    struct guarded *links;
    struct flight *under_way, *spare;
};

static enum status look_at(struct guard *g, struct flight *f)
{
    const struct link *l = f->link;
    bool begun = true;
    if (f->is_over) return STATUS_OK;
    if (f->is_issued) TRY(lane_reached(&f->done, &f->is_over));
    if (f->is_over) return STATUS_OK;
    if (!(f->seen_s > 0)) TRY(lane_reached(&f->begun, &begun));
    if (!begun) return STATUS_OK;
    double now = clock_monotonic_s();
    if (!(f->seen_s > 0)) f->seen_s = now;
    if (now - f->seen_s > g->most_s)
        FAIL(COMM,
             "%s of %zu %s on rank %d of %d of the group %s is not over after %g s: a rank is "
             "gone, or has come to another transfer",
             transfer_name(f->what.kind), f->what.count, transfer_element_name(&f->what), l->rank,
             l->size, l->name, g->most_s);
    return STATUS_OK;
}

/* With the lock held. */
static enum status look(struct guard *g)
{
    for (struct flight **at = &g->under_way; *at;) {
        struct flight *f = *at;
        TRY(look_at(g, f));
        if (!f->is_over || !f->is_waited_for) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        f->next = g->spare, g->spare = f;
    }
    for (const struct guarded *i = g->links; i; i = i->next) TRY(link_check(i->link));
    return STATUS_OK;
}

static struct timespec after(int clock, double s)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += (time_t)s, t.tv_nsec += (long)((s - floor(s)) * 1e9);
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}

/* The failure is known, so no new call of the library is begun. */
static void cut_all(struct guard *g)
{
    struct timespec patience = after(CLOCK_REALTIME, fmin(call_s, g->most_s));
    bool alone = pthread_mutex_timedlock(&g->calls, &patience) == 0;
    pthread_mutex_lock(&g->lock);
    for (const struct guarded *i = g->links; i; i = i->next) link_cut(i->link);
    pthread_mutex_unlock(&g->lock);
    if (alone) pthread_mutex_unlock(&g->calls);
}

static void *run(void *context)
{
    struct guard *g = context;
    enum status st = lane_enter(g->on);
    pthread_mutex_lock(&g->lock);
    while (!st && !g->is_closing) {
        st = look(g);
        struct timespec next = after(CLOCK_MONOTONIC, period_s);
        if (!st) pthread_cond_timedwait(&g->closing, &g->lock, &next);
    }
    failure_keep(&g->failure, st);
    pthread_mutex_unlock(&g->lock);
    if (st) cut_all(g);
    return NULL;
}

enum status guard_open(struct guard **out, struct queue *on, double most_s)
{
    struct guard *g = heap(sizeof *g);
    pthread_condattr_t by_clock;
    *g = (struct guard){.on = on, .most_s = most_s};
    pthread_mutex_init(&g->calls, NULL);
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&g->closing, &by_clock);
    pthread_condattr_destroy(&by_clock);
    enum status st = thread_start_equal(&g->thread, run, g);
    if (st) free(g);
    TRY(st);
    *out = g;
    return STATUS_OK;
}

static void free_all(struct flight *f)
{
    for (struct flight *next; f; f = next) {
        next = f->next;
        lane_mark_close(&f->begun), lane_mark_close(&f->done);
        free(f);
    }
}

void guard_close(struct guard *g)
{
    pthread_mutex_lock(&g->lock);
    g->is_closing = true;
    pthread_cond_signal(&g->closing);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    BUG_IF(g->links);
    free_all(g->under_way), free_all(g->spare);
    pthread_cond_destroy(&g->closing);
    pthread_mutex_destroy(&g->calls), pthread_mutex_destroy(&g->lock);
    free(g);
}

void guard_add(struct guard *g, struct link *l)
{
    struct guarded *i = heap(sizeof *i);
    pthread_mutex_lock(&g->lock);
    *i = (struct guarded){l, g->links};
    g->links = i;
    pthread_mutex_unlock(&g->lock);
}

/* One that is under way on the link and has not been given here before. */
static struct flight *unsettled(struct guard *g, const struct link *l)
{
    pthread_mutex_lock(&g->lock);
    struct flight *f = g->under_way;
    while (f && (f->link != l || f->is_settled)) f = f->next;
    if (f) f->is_settled = true;
    pthread_mutex_unlock(&g->lock);
    return f;
}

static bool ends_soon(const struct guard *g, const struct flight *f)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    double until = clock_monotonic_s() + fmin(call_s, g->most_s);
    bool over = false;
    while (!lane_reached(&f->done, &over) && !over && clock_monotonic_s() < until)
        nanosleep(&ms, NULL);
    return over;
}

void guard_remove(struct guard *g, struct link *l)
{
    bool fine = !g->gives_up;
    for (struct flight *f; (f = unsettled(g, l));) {
        fine = fine && f->is_waited_for; /* written by this thread alone */
        if (fine) fine = ends_soon(g, f);
        if (f->is_waited_for && !fine) g->gives_up = true;
    }
    pthread_mutex_lock(&g->lock);
    if (!fine || g->failure.status) link_cut(l);
    for (struct flight *f = g->under_way; f; f = f->next)
        if (f->link == l) f->is_over = f->is_waited_for = true;
    struct guarded **at = &g->links;
    while ((*at)->link != l) at = &(*at)->next;
    struct guarded *gone = *at;
    *at = gone->next;
    pthread_mutex_unlock(&g->lock);
    free(gone);
}

static enum status reason(struct guard *g)
{
    pthread_mutex_lock(&g->lock);
    bool failed = g->failure.status != STATUS_OK; /* which does not change any more */
    pthread_mutex_unlock(&g->lock);
    return failed ? failure_tell(&g->failure) : STATUS_OK;
}

enum status guard_enter(struct guard *g)
{
    pthread_mutex_lock(&g->calls);
    enum status st = reason(g);
    if (st) pthread_mutex_unlock(&g->calls);
    return st;
}

enum status guard_leave(struct guard *g, enum status how)
{
    pthread_mutex_unlock(&g->calls);
    enum status st = reason(g);
    return st ? st : how;
}

static enum status make_flight(struct flight **out)
{
    struct flight *f = heap(sizeof *f);
    enum status st = STATUS_OK;
    TRY_OUT(lane_mark_open(&f->begun));
    TRY_OUT(lane_mark_open(&f->done));
    *out = f;
    return STATUS_OK;
out:
    free_all(f);
    return st;
}

enum status guard_take(struct guard *g, struct flight **out)
{
    pthread_mutex_lock(&g->lock);
    struct flight *f = g->spare;
    if (f) g->spare = f->next;
    pthread_mutex_unlock(&g->lock);
    if (!f) TRY(make_flight(&f));
    *f = (struct flight){.begun = f->begun, .done = f->done};
    *out = f;
    return STATUS_OK;
}

void guard_put_back(struct guard *g, struct flight *f)
{
    pthread_mutex_lock(&g->lock);
    f->next = g->spare, g->spare = f;
    pthread_mutex_unlock(&g->lock);
}

void guard_watch(struct guard *g, struct flight *f)
{
    pthread_mutex_lock(&g->lock);
    f->next = g->under_way, g->under_way = f;
    pthread_mutex_unlock(&g->lock);
}

void guard_issued(struct guard *g, struct flight *f, bool well)
{
    pthread_mutex_lock(&g->lock);
    f->is_issued = well;
    f->is_over = f->is_waited_for = !well;
    pthread_mutex_unlock(&g->lock);
}

void guard_waited(struct guard *g, struct flight *f)
{
    pthread_mutex_lock(&g->lock);
    f->is_waited_for = true;
    pthread_mutex_unlock(&g->lock);
}
