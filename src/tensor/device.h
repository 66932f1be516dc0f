/* device.h -- the memory and the copies of a device that a queue runs on.
 *
 * Memory   `own` is device memory, which only kernels access: weights, activations, scratch.  The
 *          host goes through queue_copy and queue_zero.  `shared` is host memory that kernels
 *          access, too, for small buffers that the host writes or reads: ids, labels, losses.
 * Order    See queue.h. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"

struct queue;
struct queue_graph;

/* A stream runs its work in order, at the same time as other streams (copy_stream.h). */
enum copy_stream {
    STREAM_QUEUE, /* the queue's own */
    STREAM_IN,    /* copies to the device */
    STREAM_OUT,   /* copies to the host */
    STREAM_COUNT
};
/* A point in a stream's work; zero: nothing was recorded yet, and waiting for it does nothing. */
struct copy_event {
    void *handle; /* the device's; owned */
};

struct device {
    struct allocator own, shared;
    /* Device or host memory on either side. */
    enum status (*copy)(struct queue *queue, void *to, const void *from, size_t bytes);
    enum status (*zero)(struct queue *queue, void *x, size_t bytes);
    enum status (*wait)(struct queue *queue);
    /* Nested named ranges, which profilers show; both may be NULL. */
    void (*push_range)(struct queue *queue, const char *name);
    void (*pop_range)(struct queue *queue);
    /* Graphs (queue.h); all four functions may be NULL. */
    bool graphs_by_default; /* device.graphs = "auto" may use them */
    enum status (*begin_capture)(struct queue *queue);
    enum status (*end_capture)(struct queue *queue, struct queue_graph **out);
    enum status (*launch_graph)(struct queue *queue, const struct queue_graph *graph);
    void (*free_graph)(struct queue *queue, struct queue_graph *graph);
    /* Bytes of device memory, and bytes in use by any process. */
    enum status (*memory_info)(struct queue *queue, size_t *bytes, size_t *used);
    /* See copy_stream.h; record_event creates the event if it has no handle yet. */
    enum status (*copy_on)(struct queue *queue, enum copy_stream stream, void *to, const void *from,
                           size_t bytes);
    enum status (*record_event)(struct queue *queue, enum copy_stream stream, struct copy_event *e);
    enum status (*wait_event)(struct queue *queue, enum copy_stream stream,
                              const struct copy_event *e);
    enum status (*synchronize_event)(struct queue *queue, const struct copy_event *e);
    void (*release_event)(struct queue *queue, struct copy_event *e);
};
