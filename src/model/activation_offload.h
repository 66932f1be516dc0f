/* activation_offload.h -- activation offloading (activation_checkpoint.offload): saved activations
 * leave for pinned host memory after a block's forward and return before its backward.
 *
 * Which    What forward saves of each block, and the block's input, except that of a stage's first
 *          block, which embedding or pipeline own; and nothing of the last OFFLOAD_BUFFERS blocks
 *          if each forward is followed by its backward.
 * Order    Two buffers take turns.  While one block computes, the activations of the one before it
 *          are copied to the host, or in backward those of the next to the device.  Activations
 *          that are still in their buffer when their backward begins are not copied back.
 * Memory   The buffers, in the step arena; the copies, in the arena `host`.
 * Ranks    Nothing is communicated. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/activations.h"
#include "tensor/copy_stream.h"

enum { OFFLOAD_BUFFERS = 2 };

struct activation_offload {
    struct arena *host; /* borrowed; pinned memory for the duration of a step */
    bool alternates;    /* each forward is followed by its backward, as without a pipeline */
    /* Block i of a stage uses buffer i % OFFLOAD_BUFFERS of each part. */
    struct offload_buffer {
        void *x;
        size_t bytes;
        const struct activations *holds; /* those of its latest copy, until their backward */
        struct copy_event written, read; /* latest copies to the host, and to the device */
    } buffers[OFFLOAD_PARTS][OFFLOAD_BUFFERS];
    struct copy_event computed;
};

/* The caller has set `host` and `alternates`. */
void activation_offload_release(struct activation_offload *f, struct queue *queue);

/* Allocates the buffers, for blocks that save most with `least`; forgets what they hold. */
void activation_offload_alloc(const struct model *m, size_t N, enum recompute least,
                              struct arena *step);
/* Places what a->recompute saves of a stage's block i of `count`, and its input, in their buffers,
 * and allocates host memory for what is copied. */
void activation_offload_place(const struct model *m, size_t N, int i, int count,
                              struct activations *a);

/* `blocks`: of a stage, `count` of them.  DEVICE: the runtime's error.
 * begin_forward   what the queue runs from now on may write activations of block i and the input of
 *                 block i + 1
 * end_forward     starts to copy them to the host, after what the queue has run so far
 * begin_backward  what the queue runs from now on finds activations and input of block i; starts to
 *                 copy those of block i - 1 to the device
 * finish          what the queue runs from now on may use the buffers for something else */
enum status activation_offload_begin_forward(const struct model *m, int i, int count);
enum status activation_offload_end_forward(const struct model *m, const struct activations *blocks,
                                           int i, int count);
enum status activation_offload_begin_backward(const struct model *m,
                                              const struct activations *blocks, int i);
enum status activation_offload_finish(const struct model *m);
