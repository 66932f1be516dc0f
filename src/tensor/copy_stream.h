/* copy_stream.h -- copies between device memory and pinned host memory that overlap with a queue's
 * kernels: each direction has a stream of its own beside the queue's.
 *
 * Order    Work of a stream runs in order.  Streams run at the same time, unless copy_stream_wait
 *          makes one wait for an event of another.
 * Sizing   On a sizing queue nothing runs; the queue's observer, if it has one, sees every call. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/device.h"
#include "tensor/queue.h"

/* Sees the calls on a sizing queue, which a simulated queue turns into time. */
struct copy_observer {
    void (*on_copy)(struct copy_observer *o, enum copy_stream stream, size_t bytes);
    void (*on_record)(struct copy_observer *o, enum copy_stream stream, const struct copy_event *e);
    void (*on_wait)(struct copy_observer *o, enum copy_stream stream, const struct copy_event *e);
};

/* `queue` is a GPU's.  Each returns at once, except a copy within pinned host memory, which may
 * block.  DEVICE: the runtime's error.
 * copy     between device memory and pinned host memory, or within the latter
 * record   the event becomes that of all work submitted to the stream so far
 * wait     work submitted to the stream from now on runs after the event's latest recording */
enum status copy_stream_copy(struct queue *queue, enum copy_stream stream, void *to,
                             const void *from, size_t bytes);
enum status copy_stream_record(struct queue *queue, enum copy_stream stream, struct copy_event *e);
enum status copy_stream_wait(struct queue *queue, enum copy_stream stream,
                             const struct copy_event *e);
/* Copies to pinned host memory on STREAM_OUT, which does not wait for the queue's work, and records
 * e.  On a device without copy_on the copy is done when it returns. */
enum status copy_stream_start_out(struct queue *queue, void *to, const void *from, size_t bytes,
                                  struct copy_event *e);
/* The host waits for the event's latest recording.  DEVICE: the runtime's error. */
enum status copy_stream_synchronize(struct queue *queue, const struct copy_event *e);
void copy_stream_release_event(struct queue *queue, struct copy_event *e);
