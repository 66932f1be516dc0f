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

struct device {
    struct allocator own, shared;
    /* Device or host memory on either side. */
    enum status (*copy)(struct queue *queue, void *to, const void *from, size_t bytes);
    enum status (*zero)(struct queue *queue, void *x, size_t bytes);
    enum status (*wait)(struct queue *queue);
    /* Nested named ranges, which profilers show; both may be NULL. */
    void (*push_range)(struct queue *queue, const char *name);
    void (*pop_range)(struct queue *queue);
    /* Graphs (queue.h); all four may be NULL. */
    enum status (*begin_capture)(struct queue *queue);
    enum status (*end_capture)(struct queue *queue, struct queue_graph **out);
    enum status (*launch_graph)(struct queue *queue, const struct queue_graph *graph);
    void (*free_graph)(struct queue *queue, struct queue_graph *graph);
    /* Bytes of device memory, and bytes in use by any process. */
    enum status (*memory_info)(struct queue *queue, size_t *bytes, size_t *used);
};
