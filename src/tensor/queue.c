// SPDX-License-Identifier: Apache-2.0
#include "tensor/queue.h"

#include "base/activity.h"
#include "base/port.h"
#include "tensor/device.h"

#include <string.h>

static const struct device *device_of(const struct queue *queue)
{
    return queue ? queue->device : NULL;
}

const struct allocator *queue_device_allocator(const struct queue *queue)
{
    return device_of(queue) ? &queue->device->own : NULL;
}

const struct allocator *queue_shared_allocator(const struct queue *queue)
{
    return device_of(queue) ? &queue->device->shared : NULL;
}

static bool is_skipped(const struct queue *queue, size_t bytes)
{
    return !bytes || (queue && queue->sizing);
}

enum { CHUNK = 1 << 20 }; /* bytes a thread zeroes at a time */

enum status queue_copy(struct queue *queue, void *to, const void *from, size_t bytes)
{
    if (is_skipped(queue, bytes)) return STATUS_OK;
    if (device_of(queue)) return queue->device->copy(queue, to, from, bytes);
    memcpy(to, from, bytes);
    return STATUS_OK;
}

enum status queue_upload(struct queue *queue, void *to, const void *from, size_t bytes)
{
    TRY(queue_copy(queue, to, from, bytes));
    queue->upload = (struct upload){to, from, queue->sizing ? 0 : bytes};
    return STATUS_OK;
}

const void *queue_host_copy(const struct queue *queue, const void *x)
{
    const struct upload *u = &queue->upload;
    size_t at = (uintptr_t)x - (uintptr_t)u->to;
    return at < u->bytes ? u->from + at : NULL;
}

enum status queue_zero(struct queue *queue, void *x, size_t bytes)
{
    if (is_skipped(queue, bytes)) return STATUS_OK;
    if (device_of(queue)) return queue->device->zero(queue, x, bytes);
#pragma omp parallel for schedule(static) num_threads(queue ? queue->num_threads : 1)
    for (size_t at = 0; at < bytes; at += CHUNK)
        if (bytes - at >= CHUNK && (uintptr_t)x % 16 == 0)
            port_zero_nt((char *)x + at, CHUNK);
        else
            memset((char *)x + at, 0, bytes - at < CHUNK ? bytes - at : CHUNK);
    return STATUS_OK;
}

enum status queue_memory_info(struct queue *queue, size_t *bytes, size_t *used)
{
    BUG_IF(!device_of(queue));
    return queue->device->memory_info(queue, bytes, used);
}

enum status queue_wait(struct queue *queue)
{
    if (!device_of(queue) || queue->sizing) return STATUS_OK;
    double begin_s = activity_begin_wait();
    enum status st = queue->device->wait(queue);
    activity_end_wait(begin_s);
    return st;
}

double queue_begin_span(struct queue *queue, const char *name)
{
    if (queue->device && queue->device->push_range) queue->device->push_range(queue, name);
    return trace_begin(queue->trace);
}

void queue_end_span(struct queue *queue, const char *name, double begin_s)
{
    trace_end(queue->trace, name, begin_s);
    if (queue->device && queue->device->pop_range) queue->device->pop_range(queue);
}

bool queue_has_graphs(const struct queue *queue)
{
    return device_of(queue) && queue->device->begin_capture;
}

enum status queue_begin_capture(struct queue *queue)
{
    BUG_IF(!queue_has_graphs(queue) || queue->sizing);
    return queue->device->begin_capture(queue);
}

enum status queue_end_capture(struct queue *queue, struct queue_graph **out)
{
    return queue->device->end_capture(queue, out);
}

enum status queue_launch_graph(struct queue *queue, const struct queue_graph *graph)
{
    return queue->device->launch_graph(queue, graph);
}

void queue_free_graph(struct queue *queue, struct queue_graph *graph)
{
    if (graph) queue->device->free_graph(queue, graph);
}
