/* device.h -- where a queue's buffers lie: memory of its own that only its kernels reach, and
 * memory of the host that they reach, too.
 *
 * Memory   `own` holds what is large: weights, activations, scratch.  The host never touches it but
 *          by queue_copy and queue_zero.  `shared` holds what the host fills in or reads, and what
 *          is small: ids, labels, losses.  On the CPU both are the host's.
 * Order    Work of a queue is done in order, and may still be under way when a call returns.  The
 *          host reads what a kernel wrote, or overwrites what it reads, after queue_wait.  A copy
 *          from or to the host's memory is over when queue_copy returns. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "tensor/queue.h"

struct device {
    struct memory own, shared;
    /* Either side may be anywhere. */
    enum status (*copy)(struct queue *on, void *to, const void *from, size_t bytes);
    enum status (*zero)(struct queue *on, void *x, size_t bytes);
    enum status (*wait)(struct queue *on);
    /* Bytes of its own memory, and those of them that are in use, by whomever. */
    enum status (*fill)(struct queue *on, size_t *bytes, size_t *used);
};

/* For arena_init. */
const struct memory *queue_memory(const struct queue *on), *queue_shared(const struct queue *on);

/* `on` NULL: the host.  Nothing is done on a measuring queue.  DEVICE: an earlier kernel failed. */
enum status queue_copy(struct queue *on, void *to, const void *from, size_t bytes);
enum status queue_zero(struct queue *on, void *x, size_t bytes);
/* Of the device the queue has. */
enum status queue_fill(struct queue *on, size_t *bytes, size_t *used);
enum status queue_wait(struct queue *on); /* until all that was asked of it is done */
