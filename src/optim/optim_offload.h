/* optim_offload.h -- optimizer state in pinned host memory (optimizer.offload), which a step
 * streams through the device chunk by chunk.
 *
 * Which    Both moments, and master weights or their low halves; not master weights that the model
 *          computes with, nor the scales and the float32 moments of 8-bit moments.
 * Order    While a chunk is updated, the next are copied to the device and the last back to the
 *          host.  Three buffers take turns, so that the three overlap.
 * Memory   The buffers, in device memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/blockwise.h"
#include "tensor/copy_stream.h"
#include "tensor/dtype.h"

/* Elements [begin, end) of a shard; the pointers are to element `begin`. */
struct optim_chunk {
    size_t begin, end;
    float *weights; /* NULL if split: */
    uint16_t *low;
    void *exp_avg, *exp_avg_sq;
};

enum { OPTIM_OFFLOAD_BUFFERS = 3 };

struct optim_offload {
    enum dtype moments;
    bool is_split;                               /* low, rather than weights */
    bool keeps_weights;                          /* those are on the device */
    size_t elements, chunk_elements, num_chunks; /* optim_offload_init */
    struct optim_buffer {
        struct optim_chunk x; /* while it is open; its pointers are the buffer */
        struct copy_event copied, updated, written; /* in, by the queue, out */
    } buffers[OPTIM_OFFLOAD_BUFFERS];
    struct optim_chunk state; /* during a step: all elements; the host's pointers */
    struct copy_event begun;
};

/* The caller has set the first three fields.  Chunks are a multiple of BLOCKWISE_BLOCK, and there
 * are several even of a small shard, so that copies overlap. */
void optim_offload_init(struct optim_offload *f, size_t elements, struct arena *run);
void optim_offload_release(struct optim_offload *f, struct queue *queue);

/* A step: begin, then open and close each chunk, then end.  DEVICE: the runtime's error.
 * begin    `state`: all elements, in host memory, which work queued so far may write
 * open     what the queue runs from now on finds chunk i in *x
 * close    copies it back when that is done
 * end      what the queue runs from now on finds the new state in host memory */
enum status optim_offload_begin(struct optim_offload *f, const struct optim_chunk *state,
                                struct queue *queue);
enum status optim_offload_open(struct optim_offload *f, size_t i, struct optim_chunk *x,
                               struct queue *queue);
enum status optim_offload_close(struct optim_offload *f, size_t i, struct queue *queue);
enum status optim_offload_end(struct optim_offload *f, struct queue *queue);
