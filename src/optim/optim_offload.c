// SPDX-License-Identifier: Apache-2.0
#include "optim/optim_offload.h"

#include "tensor/element.h"

/* A copy of MAX_CHUNK elements takes about a millisecond over PCIe, far more than its latency. */
enum { MAX_CHUNK = 1 << 22, MIN_CHUNKS = 8, BUFFERS = OPTIM_OFFLOAD_BUFFERS };

void optim_offload_init(struct optim_offload *f, size_t elements, struct arena *run)
{
    size_t chunk = elements / MIN_CHUNKS / BLOCKWISE_BLOCK * BLOCKWISE_BLOCK;
    if (chunk > MAX_CHUNK) chunk = MAX_CHUNK;
    if (!chunk) chunk = BLOCKWISE_BLOCK;
    f->elements = elements, f->chunk_elements = chunk;
    f->num_chunks = (elements + chunk - 1) / chunk;
    for (int i = 0; i < BUFFERS; i++) {
        struct optim_chunk *x = &f->buffers[i].x;
        if (f->is_split)
            x->low = arena_alloc(run, chunk, sizeof *x->low);
        else if (!f->keeps_weights)
            x->weights = arena_alloc(run, chunk, sizeof *x->weights);
        x->exp_avg = arena_alloc(run, chunk, dtype_bytes(f->moments));
        x->exp_avg_sq = arena_alloc(run, chunk, dtype_bytes(f->moments));
    }
}

void optim_offload_release(struct optim_offload *f, struct queue *queue)
{
    for (int i = 0; i < BUFFERS; i++) {
        copy_stream_release_event(queue, &f->buffers[i].copied);
        copy_stream_release_event(queue, &f->buffers[i].updated);
        copy_stream_release_event(queue, &f->buffers[i].written);
    }
    copy_stream_release_event(queue, &f->begun);
}

/* Between the chunk's buffer and its place in the state. */
static enum status copy_chunk(const struct optim_offload *f, const struct optim_chunk *x,
                              enum copy_stream stream, struct queue *queue)
{
    const struct {
        bool is_used;
        void *buffer;
        const void *state;
        enum dtype dtype;
    } parts[] = {{f->is_split, x->low, f->state.low, BF16},
                 {!f->is_split && !f->keeps_weights, x->weights, f->state.weights, F32},
                 {true, x->exp_avg, f->state.exp_avg, f->moments},
                 {true, x->exp_avg_sq, f->state.exp_avg_sq, f->moments}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *buffer = parts[i].buffer, *host = element(parts[i].state, x->begin, parts[i].dtype);
        size_t bytes = (x->end - x->begin) * dtype_bytes(parts[i].dtype);
        bool in = stream == STREAM_IN;
        if (parts[i].is_used)
            TRY(copy_stream_copy(queue, stream, in ? buffer : host, in ? host : buffer, bytes));
    }
    return STATUS_OK;
}

/* Starts to copy chunk i to its buffer, once the chunk before it there is back on the host. */
static enum status load(struct optim_offload *f, size_t i, struct queue *queue)
{
    if (i >= f->num_chunks) return STATUS_OK;
    struct optim_buffer *b = &f->buffers[i % BUFFERS];
    size_t rest = f->elements - i * f->chunk_elements;
    b->x.begin = i * f->chunk_elements;
    b->x.end = b->x.begin + (rest < f->chunk_elements ? rest : f->chunk_elements);
    TRY(copy_stream_wait(queue, STREAM_IN, &b->written));
    TRY(copy_chunk(f, &b->x, STREAM_IN, queue));
    TRY(copy_stream_record(queue, STREAM_IN, &b->copied));
    return STATUS_OK;
}

enum status optim_offload_begin(struct optim_offload *f, const struct optim_chunk *state,
                                struct queue *queue)
{
    f->state = *state;
    TRY(copy_stream_record(queue, STREAM_QUEUE, &f->begun));
    TRY(copy_stream_wait(queue, STREAM_IN, &f->begun));
    for (size_t i = 0; i + 1 < BUFFERS; i++) TRY(load(f, i, queue));
    return STATUS_OK;
}

enum status optim_offload_open(struct optim_offload *f, size_t i, struct optim_chunk *x,
                               struct queue *queue)
{
    struct optim_buffer *b = &f->buffers[i % BUFFERS];
    TRY(copy_stream_wait(queue, STREAM_QUEUE, &b->copied));
    *x = b->x;
    if (f->keeps_weights) x->weights = element(f->state.weights, b->x.begin, F32);
    return STATUS_OK;
}

enum status optim_offload_close(struct optim_offload *f, size_t i, struct queue *queue)
{
    struct optim_buffer *b = &f->buffers[i % BUFFERS];
    TRY(copy_stream_record(queue, STREAM_QUEUE, &b->updated));
    TRY(copy_stream_wait(queue, STREAM_OUT, &b->updated));
    TRY(copy_chunk(f, &b->x, STREAM_OUT, queue));
    TRY(copy_stream_record(queue, STREAM_OUT, &b->written));
    return load(f, i + BUFFERS - 1, queue);
}

enum status optim_offload_end(struct optim_offload *f, struct queue *queue)
{
    for (int i = 0; i < BUFFERS; i++)
        TRY(copy_stream_wait(queue, STREAM_QUEUE, &f->buffers[i].written));
    return STATUS_OK;
}
