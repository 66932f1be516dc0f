// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/staging.h"

#include "base/checksum.h"
#include "base/host.h"
#include "tensor/copy_stream.h"

/* A chunk takes 0.3 ms over PCIe, far more than the time to launch a copy. */
enum { CHUNK = 64 * CHECKSUM_PIECE };

size_t staging_bytes(const struct shard *p, const struct shard *exp_avg_sq, enum dtype moments,
                     const struct store_blocks *blocks, bool has_ema)
{
    uint16_t low; /* only its address matters */
    const struct store f32 = {.dtype = F32}, split = {.dtype = BF16, .low = &low};
    /* Weights in f32 need as much, or less, as they are not rounded to cache lines twice. */
    size_t bytes = store_bytes(&split, p->elements);
    for (int i = 0; i < 2; i++) {
        const struct store moment = {.dtype = moments, .blocks = blocks ? blocks + i : NULL};
        bytes += store_bytes(&moment, i ? exp_avg_sq->elements : p->elements);
    }
    return bytes + (has_ema ? store_bytes(&f32, p->elements) : 0);
}

/* Copies a part from a GPU's memory; *crc becomes its checksum, of each chunk while the next one is
 * copied. */
static enum status copy_from_gpu(struct queue *queue, const char *from, size_t bytes, char *to,
                                 uint32_t *crc)
{
    struct copy_event copied[2] = {0};
    const size_t num_chunks = (bytes + CHUNK - 1) / CHUNK;
    enum status st = STATUS_OK;
    *crc = 0;
    for (size_t i = 0; i <= num_chunks; i++) {
        size_t at = i * CHUNK, last = at - CHUNK;
        if (i < num_chunks)
            TRY_OUT(copy_stream_start_out(queue, to + at, from + at,
                                          bytes - at < CHUNK ? bytes - at : CHUNK, &copied[i % 2]));
        if (!i) continue;
        TRY_OUT(copy_stream_synchronize(queue, &copied[(i - 1) % 2]));
        *crc = checksum_pieces(*crc, to + last, bytes - last < CHUNK ? bytes - last : CHUNK,
                               queue->num_threads);
    }
out:
    for (int i = 0; i < 2; i++) copy_stream_release_event(queue, &copied[i]);
    return st;
}

static enum status copy_part(struct queue *queue, const char *from, size_t bytes, char *to,
                             uint32_t *crc)
{
    if (queue && queue->device) return copy_from_gpu(queue, from, bytes, to, crc);
    *crc = checksum_copy_pieces(to, from, bytes, queue ? queue->num_threads : 1);
    return STATUS_OK;
}

/* Copies a buffer to *memory, which becomes the memory behind it. */
static enum status copy_buffer(struct staged_buffer *b, const struct store *from, size_t elements,
                               struct store_blocks *blocks, char **memory)
{
    *b = (struct staged_buffer){0};
    if (!from->x) return STATUS_OK;
    b->store = store_place(from, elements, *memory, blocks);
    struct store_parts x = store_find_parts(from, elements);
    struct store_parts y = store_find_parts(&b->store, elements);
    for (int i = 0; i < STORE_PARTS; i++)
        TRY(copy_part(from->queue, x.x[i], x.bytes[i], y.x[i], &b->crc[i]));
    *memory += store_bytes(from, elements);
    return STATUS_OK;
}

enum status staging_fill(struct staging *s, const struct checkpoint_state *from,
                         struct checkpoint_state *to)
{
    const struct store buffers[] = {
        [VALUE_WEIGHT] = checkpoint_weights(from),
        [VALUE_EXP_AVG] = checkpoint_exp_avg(from),
        [VALUE_EXP_AVG_SQ] = checkpoint_exp_avg_sq(from),
        [VALUE_EMA] = checkpoint_ema(from),
    };
    char *memory = s->memory;
    TRY(queue_wait(from->queue)); /* the stream of the copies does not wait for its kernels */
    for (enum value_kind i = 0; i < VALUE_GRADIENT; i++)
        TRY(copy_buffer(&s->of[i], &buffers[i], checkpoint_shard(from, i)->elements,
                        &s->blocks[i == VALUE_EXP_AVG_SQ], &memory));
    *to = *from;
    to->queue = NULL;
    to->weights = s->of[VALUE_WEIGHT].store.x, to->low = s->of[VALUE_WEIGHT].store.low;
    to->exp_avg = s->of[VALUE_EXP_AVG].store.x;
    to->exp_avg_sq = s->of[VALUE_EXP_AVG_SQ].store.x;
    to->moment_blocks = from->moment_blocks ? s->blocks : NULL;
    to->ema = s->of[VALUE_EMA].store.x;
    return STATUS_OK;
}

static bool is_unchanged(const struct staged_buffer *b, size_t elements)
{
    struct store_parts p = store_find_parts(&b->store, elements);
    for (int i = 0; b->store.x && i < STORE_PARTS; i++)
        if (checksum_pieces(0, p.x[i], p.bytes[i], 1) != b->crc[i]) return false;
    return true;
}

enum status staging_check(const struct staging *s, const struct checkpoint_state *state, int rank)
{
    static const char *const names[] = {
        [VALUE_WEIGHT] = "weights",
        [VALUE_EXP_AVG] = "exp_avg",
        [VALUE_EXP_AVG_SQ] = "exp_avg_sq",
        [VALUE_EMA] = "ema",
    };
    for (enum value_kind i = 0; i < VALUE_GRADIENT; i++) {
        char host[64];
        if (is_unchanged(&s->of[i], checkpoint_shard(state, i)->elements)) continue;
        host_name(host, sizeof host);
        FAIL(DEVICE,
             "rank %d on %s: the copy of %s that was being saved as step %lld changed in memory; "
             "the checkpoint is discarded; suspected hardware fault: exclude the node and resume "
             "from an earlier checkpoint",
             rank, host, names[i], (long long)state->step);
    }
    return STATUS_OK;
}
