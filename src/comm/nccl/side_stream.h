/* side_stream.h (comm/nccl) -- a CUDA or HIP stream for communication, beside the queue's or that
 * itself, and events that order it and the queue's stream.
 *
 * Order    Work of a side stream runs in order.  It is concurrent with the queue's, except where
 *          side_stream_wait_queue or side_stream_join makes one wait for the other; with is_queue
 *          it is in order with the queue's.
 * Threads  A thread that did not open the queue calls side_stream_set_device first.
 * Errors   DEVICE: the runtime reports an error. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

#include <stdbool.h>
#include <stddef.h>

struct side_stream {
    struct queue *queue; /* borrowed */
    void *handle;        /* cudaStream_t or hipStream_t; owned, unless is_queue */
    bool is_queue;       /* it is the queue's own stream */
    void *queue_event;   /* how far the queue's stream has come; owned; NULL with is_queue */
};
/* A point in a side stream's work; records of it can be repeated. */
struct side_stream_event {
    void *handle; /* cudaEvent_t or hipEvent_t; owned */
};

enum status side_stream_open(struct side_stream *s, struct queue *queue);
/* The queue's own stream: its work is in order with the queue's. */
void side_stream_use_queue(struct side_stream *s, struct queue *queue);
void side_stream_close(struct side_stream *s);
enum status side_stream_event_open(struct side_stream_event *e);
void side_stream_event_close(struct side_stream_event *e);

/* Later work of the side stream waits for all work that the queue has now. */
enum status side_stream_wait_queue(struct side_stream *s);
/* The event is reached when all work that the side stream has now is done. */
enum status side_stream_record(struct side_stream *s, struct side_stream_event *e);
/* Later work of the queue waits for the event. */
enum status side_stream_join(struct side_stream *s, const struct side_stream_event *e);
/* The host waits for the event. */
enum status side_stream_synchronize(const struct side_stream_event *e);
enum status side_stream_query(const struct side_stream_event *e, bool *is_reached);

/* The calling thread uses the queue's device from here on. */
enum status side_stream_set_device(struct queue *queue);
/* The device's PCI bus id, unique on a host; device numbers depend on the process. */
enum { SIDE_STREAM_DEVICE_ID_BYTES = 64 };
enum status side_stream_device_id(struct queue *queue, char id[SIDE_STREAM_DEVICE_ID_BYTES]);
