// SPDX-License-Identifier: Apache-2.0
#include "tensor/store.h"

#include "base/text.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>

enum { CHUNK = 1 << 20 }; /* elements staged through host memory at a time */

float *store_host_f32(const struct store *s)
{
    return s->dtype == F32 && !s->low && !queue_device_allocator(s->queue) ? s->x : NULL;
}

struct store store_f32(float *x, struct queue *queue)
{
    return (struct store){.x = x, .dtype = F32, .queue = queue};
}

static void *element_at(const struct store *s, size_t at)
{
    return (char *)s->x + at * dtype_bytes(s->dtype);
}

static int threads_of(const struct store *s) { return s->queue ? s->queue->num_threads : 1; }

static void to_f32(const bf16 *x, const uint16_t *low, size_t n, float *to, int threads)
{
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (size_t i = 0; i < n; i++) to[i] = low ? split_to_f32(x[i], low[i]) : bf16_to_f32(x[i]);
}

static void from_f32(const float *from, size_t n, bf16 *x, uint16_t *low, int threads)
{
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (size_t i = 0; i < n; i++)
        if (low)
            split_from_f32(from[i], &x[i], &low[i]);
        else
            x[i] = bf16_from_f32(from[i]);
}

static enum status read_chunk(const struct store *s, size_t at, size_t n, float *to,
                              uint16_t *staging)
{
    TRY(queue_copy(s->queue, staging, element_at(s, at), n * sizeof *staging));
    if (s->low) TRY(queue_copy(s->queue, staging + CHUNK, s->low + at, n * sizeof *staging));
    to_f32(staging, s->low ? staging + CHUNK : NULL, n, to, threads_of(s));
    return STATUS_OK;
}

static enum status write_chunk(const struct store *s, size_t at, size_t n, const float *from,
                               uint16_t *staging)
{
    from_f32(from, n, staging, s->low ? staging + CHUNK : NULL, threads_of(s));
    TRY(queue_copy(s->queue, element_at(s, at), staging, n * sizeof *staging));
    if (s->low) TRY(queue_copy(s->queue, s->low + at, staging + CHUNK, n * sizeof *staging));
    return STATUS_OK;
}

/* Chunk by chunk; reads if `to` is not NULL, else writes from `from`. */
static enum status by_chunks(const struct store *s, size_t at, size_t n, float *to,
                             const float *from)
{
    uint16_t *staging = heap(2 * CHUNK * sizeof *staging);
    enum status st = STATUS_OK;
    for (size_t done = 0; done < n && !st; done += CHUNK) {
        size_t len = n - done < CHUNK ? n - done : CHUNK;
        st = to ? read_chunk(s, at + done, len, to + done, staging)
                : write_chunk(s, at + done, len, from + done, staging);
    }
    free(staging);
    return st;
}

enum status store_read(const struct store *s, size_t at, size_t n, float *to)
{
    if (s->dtype == F32) return queue_copy(s->queue, to, element_at(s, at), n * sizeof *to);
    if (queue_device_allocator(s->queue)) return by_chunks(s, at, n, to, NULL);
    to_f32(element_at(s, at), s->low ? s->low + at : NULL, n, to, threads_of(s));
    return STATUS_OK;
}

enum status store_write(const struct store *s, size_t at, size_t n, const float *from)
{
    if (s->dtype == F32) return queue_copy(s->queue, element_at(s, at), from, n * sizeof *from);
    if (queue_device_allocator(s->queue)) return by_chunks(s, at, n, NULL, from);
    from_f32(from, n, element_at(s, at), s->low ? s->low + at : NULL, threads_of(s));
    return STATUS_OK;
}

enum status store_zero(const struct store *s, size_t n)
{
    TRY(queue_zero(s->queue, s->x, n * dtype_bytes(s->dtype)));
    if (s->low) TRY(queue_zero(s->queue, s->low, n * sizeof *s->low));
    return STATUS_OK;
}

/* Each copy doubles what is filled. */
static enum status repeat_bytes(struct queue *queue, void *x, size_t period, size_t bytes)
{
    for (size_t done = period, n; done < bytes; done += n) {
        n = done < bytes - done ? done : bytes - done;
        TRY(queue_copy(queue, (char *)x + done, x, n));
    }
    return STATUS_OK;
}

enum status store_repeat(const struct store *s, size_t at, size_t period, size_t n)
{
    size_t each = dtype_bytes(s->dtype), low = sizeof *s->low;
    BUG_IF(!period);
    TRY(repeat_bytes(s->queue, element_at(s, at), period * each, n * each));
    if (s->low) TRY(repeat_bytes(s->queue, s->low + at, period * low, n * low));
    return STATUS_OK;
}
