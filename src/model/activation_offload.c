// SPDX-License-Identifier: Apache-2.0
#include "model/activation_offload.h"

#include "model/residual.h"

static struct offload_buffer *buffer_of(const struct model *m, enum offload_part part, int i)
{
    return &m->offload->buffers[part][i % OFFLOAD_BUFFERS];
}

void activation_offload_release(struct activation_offload *f, struct queue *queue)
{
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        for (int i = 0; i < OFFLOAD_BUFFERS; i++) {
            copy_stream_release_event(queue, &f->buffers[part][i].written);
            copy_stream_release_event(queue, &f->buffers[part][i].read);
        }
    copy_stream_release_event(queue, &f->computed);
}

static size_t input_bytes(const struct model *m, size_t N)
{
    return residual_rows(m, N) * (size_t)m->shape.D * dtype_bytes(m->dtype);
}

void activation_offload_alloc(const struct model *m, size_t N, enum recompute least,
                              struct arena *step)
{
    struct activations a = {.recompute = least};
    struct arena saved = {0};
    activations_alloc_saved(m, N, &a, &saved);
    const size_t bytes[OFFLOAD_PARTS] = {
        [OFFLOAD_INPUT] = input_bytes(m, N), [OFFLOAD_SAVED] = saved.used};
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        for (int i = 0; i < OFFLOAD_BUFFERS; i++) {
            struct offload_buffer *b = &m->offload->buffers[part][i];
            b->x = arena_alloc(step, bytes[part], 1), b->bytes = bytes[part];
            b->holds = NULL;
        }
}

void activation_offload_place(const struct model *m, size_t N, int i, int count,
                              struct activations *a)
{
    /* No later forward overwrites the buffers of the last blocks before their backward. */
    bool stays = m->offload->alternates && i + OFFLOAD_BUFFERS >= count;
    struct offload_buffer *saved = buffer_of(m, OFFLOAD_SAVED, i);
    struct arena inside = {.base = saved->x, .size = saved->x ? saved->bytes : 0};
    struct arena *host = m->offload->host;
    activations_alloc_saved(m, N, a, &inside);
    a->offloaded[OFFLOAD_SAVED].bytes = stays ? 0 : inside.used;
    a->offloaded[OFFLOAD_INPUT].bytes = i && !stays ? input_bytes(m, N) : 0;
    if (i) a->x_SD = buffer_of(m, OFFLOAD_INPUT, i)->x;
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        a->offloaded[part].host = arena_alloc(host, a->offloaded[part].bytes, 1);
}

/* What the queue runs from now on may overwrite the buffer. */
static enum status wait_written(const struct model *m, enum offload_part part, int i)
{
    return copy_stream_wait(m->queue, STREAM_QUEUE, &buffer_of(m, part, i)->written);
}

enum status activation_offload_begin_forward(const struct model *m, int i, int count)
{
    TRY(wait_written(m, OFFLOAD_SAVED, i));
    buffer_of(m, OFFLOAD_SAVED, i)->holds = NULL;
    if (i + 1 == count) return STATUS_OK;
    TRY(wait_written(m, OFFLOAD_INPUT, i + 1));
    buffer_of(m, OFFLOAD_INPUT, i + 1)->holds = NULL;
    return STATUS_OK;
}

static enum status write_part(const struct model *m, const struct activations *a,
                              enum offload_part part, int i)
{
    struct offload_buffer *b = buffer_of(m, part, i);
    const struct offloaded *to = &a->offloaded[part];
    b->holds = a;
    if (!to->bytes) return STATUS_OK;
    TRY(copy_stream_wait(m->queue, STREAM_OUT, &m->offload->computed));
    TRY(copy_stream_copy(m->queue, STREAM_OUT, to->host, b->x, to->bytes));
    TRY(copy_stream_record(m->queue, STREAM_OUT, &b->written));
    return STATUS_OK;
}

enum status activation_offload_end_forward(const struct model *m, const struct activations *blocks,
                                           int i, int count)
{
    TRY(copy_stream_record(m->queue, STREAM_QUEUE, &m->offload->computed));
    TRY(write_part(m, &blocks[i], OFFLOAD_SAVED, i));
    if (i + 1 < count) TRY(write_part(m, &blocks[i + 1], OFFLOAD_INPUT, i + 1));
    return STATUS_OK;
}

/* Starts to copy the part back, unless the buffer still holds it.  The buffer's latest copy to the
 * host is that of block i, or a later one. */
static enum status read_part(const struct model *m, const struct activations *a,
                             enum offload_part part, int i)
{
    struct offload_buffer *b = buffer_of(m, part, i);
    const struct offloaded *from = &a->offloaded[part];
    if (b->holds == a || !from->bytes) return STATUS_OK;
    TRY(copy_stream_wait(m->queue, STREAM_IN, &m->offload->computed));
    TRY(copy_stream_wait(m->queue, STREAM_IN, &b->written));
    TRY(copy_stream_copy(m->queue, STREAM_IN, b->x, from->host, from->bytes));
    TRY(copy_stream_record(m->queue, STREAM_IN, &b->read));
    b->holds = a;
    return STATUS_OK;
}

static enum status read_block(const struct model *m, const struct activations *blocks, int i)
{
    TRY(copy_stream_record(m->queue, STREAM_QUEUE, &m->offload->computed));
    for (int part = 0; part < OFFLOAD_PARTS; part++) TRY(read_part(m, &blocks[i], part, i));
    return STATUS_OK;
}

enum status activation_offload_begin_backward(const struct model *m,
                                              const struct activations *blocks, int i)
{
    TRY(read_block(m, blocks, i)); /* of the stage's last block; others are on their way */
    if (i) TRY(read_block(m, blocks, i - 1));
    for (int part = 0; part < OFFLOAD_PARTS; part++) {
        TRY(copy_stream_wait(m->queue, STREAM_QUEUE, &buffer_of(m, part, i)->read));
        TRY(wait_written(m, part, i)); /* backward overwrites activations with their gradients */
    }
    return STATUS_OK;
}

enum status activation_offload_finish(const struct model *m)
{
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        for (int i = 0; i < OFFLOAD_BUFFERS; i++) TRY(wait_written(m, part, i));
    return STATUS_OK;
}
