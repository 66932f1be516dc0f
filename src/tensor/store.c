// SPDX-License-Identifier: Apache-2.0
#include "tensor/store.h"

#include "base/text.h"
#include "tensor/device.h"

#include <stdlib.h>

enum { RUN = 1 << 20 }; /* numbers that go through the host's memory at a time */

float *store_plain(const struct store *s)
{
    return s->dtype == F32 && !s->low && !queue_memory(s->on) ? s->x : NULL;
}

struct store store_f32(float *x, struct queue *on)
{
    return (struct store){.x = x, .dtype = F32, .on = on};
}

static void *number_at(const struct store *s, size_t at)
{
    return (char *)s->x + at * dtype_bytes(s->dtype);
}

static int threads_of(const struct store *s) { return s->on ? s->on->num_threads : 1; }

static void widen(const bf16 *x, const uint16_t *low, size_t n, float *to, int threads)
{
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (size_t i = 0; i < n; i++) to[i] = low ? split_to_f32(x[i], low[i]) : bf16_to_f32(x[i]);
}

static void narrow(const float *from, size_t n, bf16 *x, uint16_t *low, int threads)
{
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (size_t i = 0; i < n; i++)
        if (low)
            split_from_f32(from[i], &x[i], &low[i]);
        else
            x[i] = bf16_from_f32(from[i]);
}

static enum status read_run(const struct store *s, size_t at, size_t n, float *to, uint16_t *run)
{
    TRY(queue_copy(s->on, run, number_at(s, at), n * sizeof *run));
    if (s->low) TRY(queue_copy(s->on, run + RUN, s->low + at, n * sizeof *run));
    widen(run, s->low ? run + RUN : NULL, n, to, threads_of(s));
    return STATUS_OK;
}

static enum status write_run(const struct store *s, size_t at, size_t n, const float *from,
                             uint16_t *run)
{
    narrow(from, n, run, s->low ? run + RUN : NULL, threads_of(s));
    TRY(queue_copy(s->on, number_at(s, at), run, n * sizeof *run));
    if (s->low) TRY(queue_copy(s->on, s->low + at, run + RUN, n * sizeof *run));
    return STATUS_OK;
}

/* Run after run: one of the two, numbers to be read or to be written, is not NULL. */
static enum status by_runs(const struct store *s, size_t at, size_t n, float *to, const float *from)
{
    uint16_t *run = heap(2 * RUN * sizeof *run);
    enum status st = STATUS_OK;
    for (size_t done = 0; done < n && !st; done += RUN) {
        size_t some = n - done < RUN ? n - done : RUN;
        st = to ? read_run(s, at + done, some, to + done, run)
                : write_run(s, at + done, some, from + done, run);
    }
    free(run);
    return st;
}

enum status store_read(const struct store *s, size_t at, size_t n, float *to)
{
    if (s->dtype == F32) return queue_copy(s->on, to, number_at(s, at), n * sizeof *to);
    if (queue_memory(s->on)) return by_runs(s, at, n, to, NULL);
    widen(number_at(s, at), s->low ? s->low + at : NULL, n, to, threads_of(s));
    return STATUS_OK;
}

enum status store_write(const struct store *s, size_t at, size_t n, const float *from)
{
    if (s->dtype == F32) return queue_copy(s->on, number_at(s, at), from, n * sizeof *from);
    if (queue_memory(s->on)) return by_runs(s, at, n, NULL, from);
    narrow(from, n, number_at(s, at), s->low ? s->low + at : NULL, threads_of(s));
    return STATUS_OK;
}

enum status store_zero(const struct store *s, size_t n)
{
    TRY(queue_zero(s->on, s->x, n * dtype_bytes(s->dtype)));
    if (s->low) TRY(queue_zero(s->on, s->low, n * sizeof *s->low));
    return STATUS_OK;
}
