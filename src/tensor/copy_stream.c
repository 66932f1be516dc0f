// SPDX-License-Identifier: Apache-2.0
#include "tensor/copy_stream.h"
enum status copy_stream_copy(struct queue *queue, enum copy_stream stream, void *to,
                             const void *from, size_t bytes)
{
    struct copy_observer *o = queue->copy_observer;
    if (queue->sizing && o) o->on_copy(o, stream, bytes);
    if (queue->sizing || !bytes) return STATUS_OK;
    BUG_IF(!queue->device);
    return queue->device->copy_on(queue, stream, to, from, bytes);
}

enum status copy_stream_record(struct queue *queue, enum copy_stream stream, struct copy_event *e)
{
    struct copy_observer *o = queue->copy_observer;
    if (queue->sizing && o) o->on_record(o, stream, e);
    if (queue->sizing) return STATUS_OK;
    BUG_IF(!queue->device);
    return queue->device->record_event(queue, stream, e);
}

enum status copy_stream_wait(struct queue *queue, enum copy_stream stream,
                             const struct copy_event *e)
{
    struct copy_observer *o = queue->copy_observer;
    if (queue->sizing && o) o->on_wait(o, stream, e);
    if (queue->sizing || !e->handle) return STATUS_OK;
    return queue->device->wait_event(queue, stream, e);
}

enum status copy_stream_start_out(struct queue *queue, void *to, const void *from, size_t bytes,
                                  struct copy_event *e)
{
    if (!queue->device->copy_on) return queue_copy(queue, to, from, bytes);
    TRY(copy_stream_copy(queue, STREAM_OUT, to, from, bytes));
    return copy_stream_record(queue, STREAM_OUT, e);
}

enum status copy_stream_synchronize(struct queue *queue, const struct copy_event *e)
{
    return e->handle ? queue->device->synchronize_event(queue, e) : STATUS_OK;
}

void copy_stream_release_event(struct queue *queue, struct copy_event *e)
{
    if (e->handle) queue->device->release_event(queue, e);
    *e = (struct copy_event){0};
}
