/* The lane of lane.h, as a thread that does one thing after the other. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/lane.h"

#include "base/text.h"
#include "comm/nccl/stub.h"
#include "tensor/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct work {
    void (*run)(void *work);
    void *what;
    struct work *next;
};

struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **end;
    bool is_closing;
};

static void *run(void *context)
{
    struct stream *s = context;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct work *w = s->first;
        if (!w && s->is_closing) break;
        if (!w) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->first = w->next;
        if (!s->first) s->end = &s->first;
        pthread_mutex_unlock(&s->lock);
        w->run(w->what);
        free(w);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void stub_push(void *stream, void (*run_work)(void *work), void *what)
{
    struct stream *s = stream;
    struct work *w = heap(sizeof *w);
    *w = (struct work){run_work, what, NULL};
    pthread_mutex_lock(&s->lock);
    *s->end = w, s->end = &w->next;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

enum status lane_open(struct lane *l, struct queue *on)
{
    struct stream *s = heap(sizeof *s);
    *l = (struct lane){.on = on, .stream = s};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->end = &s->first;
    BUG_IF(pthread_create(&s->thread, NULL, run, s));
    stub_count_lane(1);
    return STATUS_OK;
}

void lane_close(struct lane *l)
{
    struct stream *s = l->stream;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    l->stream = NULL;
    stub_count_lane(-1);
}

/* Set so many times, and reached so many of them; kept while the stream knows it. */
struct event {
    int set, reached, known;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void let_go(struct event *e)
{
    if (--e->known == 0) free(e);
}

static void reach(void *what)
{
    struct event *e = what;
    pthread_mutex_lock(&lock);
    e->reached++;
    let_go(e);
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

enum status lane_mark_open(struct lane_mark *m)
{
    struct event *e = heap(sizeof *e);
    e->known = 1;
    m->event = e;
    stub_count_mark(1);
    return STATUS_OK;
}

void lane_mark_close(struct lane_mark *m)
{
    if (!m->event) return;
    pthread_mutex_lock(&lock);
    let_go(m->event);
    pthread_mutex_unlock(&lock);
    m->event = NULL;
    stub_count_mark(-1);
}

enum status lane_follow(struct lane *l)
{
    TRY(queue_wait(l->on));
    return STATUS_OK;
}

enum status lane_set(struct lane *l, struct lane_mark *m)
{
    struct event *e = m->event;
    pthread_mutex_lock(&lock);
    e->set++, e->known++;
    pthread_mutex_unlock(&lock);
    stub_push(l->stream, reach, e);
    return STATUS_OK;
}

enum status lane_wait(const struct lane_mark *m)
{
    const struct event *e = m->event;
    pthread_mutex_lock(&lock);
    while (e->reached < e->set) pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

/* The queue's work is done by the thread that asks for it, which therefore waits itself. */
enum status lane_join(struct lane *l, const struct lane_mark *m)
{
    (void)l;
    TRY(lane_wait(m));
    return STATUS_OK;
}

enum status lane_reached(const struct lane_mark *m, bool *reached)
{
    const struct event *e = m->event;
    pthread_mutex_lock(&lock);
    *reached = e->reached == e->set;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

enum status lane_enter(struct queue *on)
{
    (void)on;
    return STATUS_OK;
}

static __thread const char *device = "0000:01:00.0";
void stub_device(const char *name) { device = name; }

enum status lane_device(struct queue *on, char name[LANE_DEVICE_NAME])
{
    (void)on;
    snprintf(name, LANE_DEVICE_NAME, "%s", device);
    return STATUS_OK;
}
