/* side_stream.h with a thread for each stream, which runs its work in order. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/side_stream.h"

#include "base/text.h"
#include "comm/nccl/stub.h"
#include "tensor/device.h"
#include "tensor/queue.h"

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

static void *run_stream(void *context)
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

static void open_stream(struct side_stream *s, struct queue *queue)
{
    struct stream *stream = heap(sizeof *stream);
    *s = (struct side_stream){.queue = queue, .handle = stream};
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    stream->end = &stream->first;
    BUG_IF(pthread_create(&stream->thread, NULL, run_stream, stream));
}

enum status side_stream_open(struct side_stream *s, struct queue *queue)
{
    open_stream(s, queue);
    stub_count_stream(1);
    return STATUS_OK;
}

/* The queue's work runs in the calling thread, which waits for this stream's. */
void side_stream_use_queue(struct side_stream *s, struct queue *queue)
{
    open_stream(s, queue);
    s->is_queue = true;
}

void side_stream_close(struct side_stream *s)
{
    struct stream *stream = s->handle;
    if (!stream) return;
    pthread_mutex_lock(&stream->lock);
    stream->is_closing = true;
    pthread_cond_signal(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
    s->handle = NULL;
    if (!s->is_queue) stub_count_stream(-1);
}

/* Freed with the last reference: its owner, and each record in a stream. */
struct event {
    int records, reached, references;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t event_reached = PTHREAD_COND_INITIALIZER;

static void release_event(struct event *event)
{
    if (--event->references == 0) free(event);
}

static void reach_event(void *what)
{
    struct event *event = what;
    pthread_mutex_lock(&lock);
    event->reached++;
    release_event(event);
    pthread_cond_broadcast(&event_reached);
    pthread_mutex_unlock(&lock);
}

enum status side_stream_event_open(struct side_stream_event *e)
{
    struct event *event = heap(sizeof *event);
    event->references = 1;
    e->handle = event;
    stub_count_event(1);
    return STATUS_OK;
}

void side_stream_event_close(struct side_stream_event *e)
{
    if (!e->handle) return;
    pthread_mutex_lock(&lock);
    release_event(e->handle);
    pthread_mutex_unlock(&lock);
    e->handle = NULL;
    stub_count_event(-1);
}

enum status side_stream_wait_queue(struct side_stream *s)
{
    TRY(queue_wait(s->queue));
    return STATUS_OK;
}

enum status side_stream_record(struct side_stream *s, struct side_stream_event *e)
{
    struct event *event = e->handle;
    pthread_mutex_lock(&lock);
    event->records++, event->references++;
    pthread_mutex_unlock(&lock);
    stub_push(s->handle, reach_event, event);
    return STATUS_OK;
}

enum status side_stream_synchronize(const struct side_stream_event *e)
{
    const struct event *event = e->handle;
    pthread_mutex_lock(&lock);
    while (event->reached < event->records) pthread_cond_wait(&event_reached, &lock);
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

static __thread int joins;
static __thread const void *last_joined;
int stub_joins(const void **last)
{
    *last = last_joined;
    return joins;
}

/* The queue's work runs in the calling thread, so that thread waits. */
enum status side_stream_join(struct side_stream *s, const struct side_stream_event *e)
{
    (void)s;
    joins++, last_joined = e->handle;
    TRY(side_stream_synchronize(e));
    return STATUS_OK;
}

enum status side_stream_query(const struct side_stream_event *e, bool *is_reached)
{
    const struct event *event = e->handle;
    pthread_mutex_lock(&lock);
    *is_reached = event->reached == event->records;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

enum status side_stream_set_device(struct queue *queue)
{
    (void)queue;
    return STATUS_OK;
}

static __thread const char *device = "0000:01:00.0";
void stub_device(const char *name) { device = name; }

enum status side_stream_device_id(struct queue *queue, char id[SIDE_STREAM_DEVICE_ID_BYTES])
{
    (void)queue;
    snprintf(id, SIDE_STREAM_DEVICE_ID_BYTES, "%s", device);
    return STATUS_OK;
}
