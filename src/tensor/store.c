// SPDX-License-Identifier: Apache-2.0
#include "tensor/store.h"

#include "base/status.h"
#include "base/text.h"
#include "tensor/blockwise.h"
#include "tensor/device.h"
#include "tensor/element.h"
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

/* --- parts --- */

static size_t num_full(const struct store_blocks *b)
{
    const struct store_range *last = b->num_ranges ? &b->ranges[b->num_ranges - 1] : NULL;
    return last ? last->full + last->count : 0;
}

struct store_parts store_find_parts(const struct store *s, size_t n)
{
    const struct store_blocks *b = s->dtype == INT8 ? s->blocks : NULL;
    struct store_parts p = {{s->x, s->low}, {n * dtype_bytes(s->dtype)}};
    if (s->low) p.bytes[1] = n * sizeof *s->low;
    if (b) p.x[1] = b->scales, p.bytes[1] = blockwise_num_blocks(n) * sizeof *b->scales;
    if (b) p.x[2] = b->full, p.bytes[2] = num_full(b) * sizeof *b->full;
    return p;
}

enum { LINE = 64 }; /* bytes of a cache line */

static size_t round_up(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

size_t store_bytes(const struct store *s, size_t n)
{
    struct store_parts p = store_find_parts(s, n);
    size_t bytes = 0;
    for (int i = 0; i < STORE_PARTS; i++) bytes += round_up(p.bytes[i]);
    return bytes;
}

struct store store_place(const struct store *s, size_t n, void *memory, struct store_blocks *blocks)
{
    struct store_parts p = store_find_parts(s, n);
    struct store to = {.x = memory, .dtype = s->dtype};
    void *second = (char *)memory + round_up(p.bytes[0]);
    if (s->low) to.low = second;
    if (s->dtype != INT8) return to;
    *blocks = *s->blocks;
    blocks->scales = second;
    blocks->full = (float *)((char *)second + round_up(p.bytes[1]));
    to.blocks = blocks;
    return to;
}

/* --- bf16 and split --- */

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
    TRY(queue_copy(s->queue, staging, element(s->x, at, s->dtype), n * sizeof *staging));
    if (s->low) TRY(queue_copy(s->queue, staging + n, s->low + at, n * sizeof *staging));
    to_f32(staging, s->low ? staging + n : NULL, n, to, threads_of(s));
    return STATUS_OK;
}

static enum status write_chunk(const struct store *s, size_t at, size_t n, const float *from,
                               uint16_t *staging)
{
    from_f32(from, n, staging, s->low ? staging + n : NULL, threads_of(s));
    TRY(queue_copy(s->queue, element(s->x, at, s->dtype), staging, n * sizeof *staging));
    if (s->low) TRY(queue_copy(s->queue, s->low + at, staging + n, n * sizeof *staging));
    return STATUS_OK;
}

/* Chunk by chunk; reads if `to` is not NULL, else writes from `from`. */
static enum status by_chunks(const struct store *s, size_t at, size_t n, float *to,
                             const float *from)
{
    _Static_assert(2 * CHUNK * sizeof(uint16_t) <= STORE_SCRATCH_BYTES, "a chunk and its low bits");
    uint16_t *staging = s->scratch;
    if (!staging) staging = heap(2 * (n < CHUNK ? n : CHUNK) * sizeof *staging);
    enum status st = STATUS_OK;
    for (size_t done = 0; done < n && !st; done += CHUNK) {
        size_t len = n - done < CHUNK ? n - done : CHUNK;
        st = to ? read_chunk(s, at + done, len, to + done, staging)
                : write_chunk(s, at + done, len, from + done, staging);
    }
    if (staging != s->scratch) free(staging);
    return st;
}

/* --- INT8 --- */

/* Staging of CHUNK elements. */
struct block_chunk {
    struct blockwise_map map;
    uint8_t codes[CHUNK];
    float scales[CHUNK / BLOCKWISE_BLOCK + 2]; /* + 2: reading may begin and end within blocks */
};

/* Elements of the block that `at` is in, from there to the block's end, at most `most`. */
static size_t rest_of_block(size_t at, size_t most)
{
    size_t rest = BLOCKWISE_BLOCK - at % BLOCKWISE_BLOCK;
    return rest < most ? rest : most;
}

static enum status read_blocks(const struct store *s, size_t at, size_t n, float *to,
                               struct block_chunk *c)
{
    size_t first = at / BLOCKWISE_BLOCK, blocks = (at + n - 1) / BLOCKWISE_BLOCK - first + 1;
    TRY(queue_copy(s->queue, c->codes, element(s->x, at, s->dtype), n));
    TRY(queue_copy(s->queue, c->scales, s->blocks->scales + first, blocks * sizeof *c->scales));
#pragma omp parallel for schedule(static) num_threads(threads_of(s))
    for (size_t b = 0; b < blocks; b++) {
        size_t begin = b ? (first + b) * BLOCKWISE_BLOCK - at : 0;
        blockwise_dequantize(&c->map, c->codes + begin, rest_of_block(at + begin, n - begin),
                             c->scales[b], to + begin);
    }
    return STATUS_OK;
}

static enum status write_blocks(const struct store *s, size_t at, size_t n, const float *from,
                                struct block_chunk *c)
{
    size_t first = at / BLOCKWISE_BLOCK, blocks = blockwise_num_blocks(n);
    BUG_IF(at % BLOCKWISE_BLOCK);
#pragma omp parallel for schedule(static) num_threads(threads_of(s))
    for (size_t b = 0; b < blocks; b++) {
        size_t begin = b * BLOCKWISE_BLOCK;
        blockwise_quantize(&c->map, from + begin, rest_of_block(begin, n - begin), c->codes + begin,
                           &c->scales[b]);
    }
    TRY(queue_copy(s->queue, element(s->x, at, s->dtype), c->codes, n));
    return queue_copy(s->queue, s->blocks->scales + first, c->scales, blocks * sizeof *c->scales);
}

/* The first range that ends after `at`, or the end of the ranges. */
static size_t find_range(const struct store_blocks *b, size_t at)
{
    size_t low = 0, high = b->num_ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (b->ranges[middle].at + b->ranges[middle].count > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Reads if `to` is not NULL, else writes from `from`. */
static enum status move_quantized(const struct store *s, size_t at, size_t n, float *to,
                                  const float *from)
{
    const struct store_blocks *b = s->blocks;
    _Static_assert(sizeof(struct block_chunk) <= STORE_SCRATCH_BYTES, "a chunk");
    struct block_chunk *c = s->scratch ? s->scratch : heap(sizeof *c);
    enum status st = STATUS_OK;
    size_t next = find_range(b, at);
    blockwise_map_init(&c->map, b->is_signed);
    for (size_t done = 0, len; done < n && !st; done += len) {
        size_t here = at + done;
        const struct store_range *r = next < b->num_ranges ? &b->ranges[next] : NULL;
        bool is_full = r && r->at <= here;
        size_t end = is_full ? r->at + r->count : r ? r->at : at + n;
        len = end < at + n ? end - here : n - done;
        if (!is_full && len > CHUNK) len = CHUNK;
        float *full = is_full ? b->full + r->full + (here - r->at) : NULL;
        if (is_full && to)
            st = queue_copy(s->queue, to + done, full, len * sizeof *to);
        else if (is_full)
            st = queue_copy(s->queue, full, from + done, len * sizeof *from);
        else if (to)
            st = read_blocks(s, here, len, to + done, c);
        else
            st = write_blocks(s, here, len, from + done, c);
        next += is_full && here + len == end;
    }
    if (c != s->scratch) free(c);
    return st;
}

/* --- any dtype --- */

enum status store_read(const struct store *s, size_t at, size_t n, float *to)
{
    if (s->dtype == INT8) return move_quantized(s, at, n, to, NULL);
    if (s->dtype == F32)
        return queue_copy(s->queue, to, element(s->x, at, s->dtype), n * sizeof *to);
    if (queue_device_allocator(s->queue)) return by_chunks(s, at, n, to, NULL);
    to_f32(element(s->x, at, s->dtype), s->low ? s->low + at : NULL, n, to, threads_of(s));
    return STATUS_OK;
}

enum status store_write(const struct store *s, size_t at, size_t n, const float *from)
{
    if (s->dtype == INT8) return move_quantized(s, at, n, NULL, from);
    if (s->dtype == F32)
        return queue_copy(s->queue, element(s->x, at, s->dtype), from, n * sizeof *from);
    if (queue_device_allocator(s->queue)) return by_chunks(s, at, n, NULL, from);
    from_f32(from, n, element(s->x, at, s->dtype), s->low ? s->low + at : NULL, threads_of(s));
    return STATUS_OK;
}

enum status store_zero(const struct store *s, size_t n)
{
    BUG_IF(s->dtype == INT8);
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
    BUG_IF(!period || s->dtype == INT8);
    TRY(repeat_bytes(s->queue, element(s->x, at, s->dtype), period * each, n * each));
    if (s->low) TRY(repeat_bytes(s->queue, s->low + at, period * low, n * low));
    return STATUS_OK;
}
