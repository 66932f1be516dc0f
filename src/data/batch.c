// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

#include "base/rng.h"
#include "ops/context.h"
#include "ops/cross_entropy.h"
#include "tensor/element.h"

#include <string.h>

enum { BLOCK_ARRAYS = 6, ALIGNED_ELEMENTS = ARENA_ALIGN / sizeof(int32_t) };

static void set_arrays(struct batch *b, int32_t *block)
{
    b->block = block;
    if (!block) return;
    b->ids_BT = block, b->labels_BT = block + b->stride;
    b->start_BT = block + 2 * b->stride, b->end_BT = block + 3 * b->stride;
    b->order_BT = block + 4 * b->stride, b->inverse_order_BT = block + 5 * b->stride;
}

void batch_alloc(struct batch *b, int B, int T, struct arena *run)
{
    size_t tokens = (size_t)B * (size_t)T;
    *b = (struct batch){.B = B, .T = T};
    b->stride = (tokens + ALIGNED_ELEMENTS - 1) / ALIGNED_ELEMENTS * ALIGNED_ELEMENTS;
    set_arrays(b, arena_alloc(run, b->stride, BLOCK_ARRAYS * sizeof *b->block));
    b->num_labels = arena_alloc(run, (size_t)B, sizeof *b->num_labels);
}

void batch_alloc_weights(struct batch *b, struct arena *run)
{
    b->weight_BT = arena_alloc(run, (size_t)b->B * (size_t)b->T, sizeof *b->weight_BT);
    b->has_weights = true;
}

bool batch_is_valid(const struct batch *b, size_t n)
{
    return b->has_weights ? b->weight_BT[n] > 0 : b->labels_BT[n] != LABEL_IGNORED;
}

int64_t batch_count_valid(const struct batch *b, int first_row, int rows)
{
    size_t first = (size_t)first_row * (size_t)b->T, count = (size_t)rows * (size_t)b->T;
    int64_t valid = 0;
    for (size_t n = first; n < first + count; n++) valid += batch_is_valid(b, n);
    return valid;
}

void batch_order_labels(struct batch *b, int num_microbatches)
{
    int N = b->B / num_microbatches * b->T;
    for (int i = 0; i < num_microbatches; i++) {
        size_t first = (size_t)i * (size_t)N;
        const int32_t *labels = b->labels_BT + first;
        int32_t *order = b->order_BT + first, *inverse = b->inverse_order_BT + first;
        int32_t count = 0, next = 0;
        for (int n = 0; n < N; n++) count += labels[n] != LABEL_IGNORED;
        b->num_labels[i] = count;
        for (int n = 0, other = count; n < N && count < N; n++) {
            inverse[n] = labels[n] != LABEL_IGNORED ? next++ : other++;
            order[inverse[n]] = n;
        }
    }
}

void batch_copy_row(struct batch *b, int i, const struct batch *row)
{
    size_t at = (size_t)i * (size_t)b->T, bytes = (size_t)b->T * sizeof(int32_t);
    memcpy(b->ids_BT + at, row->ids_BT, bytes), memcpy(b->labels_BT + at, row->labels_BT, bytes);
    memcpy(b->start_BT + at, row->start_BT, bytes), memcpy(b->end_BT + at, row->end_BT, bytes);
    BUG_IF(row->has_weights != b->has_weights);
    if (b->has_weights) memcpy(b->weight_BT + at, row->weight_BT, bytes);
    b->valid += row->valid, b->bytes += row->bytes, b->padding += row->padding;
}

void batch_pad_row(struct batch *b, int i)
{
    for (int t = 0; t < b->T; t++) {
        size_t at = (size_t)i * (size_t)b->T + (size_t)t;
        b->ids_BT[at] = 0, b->labels_BT[at] = LABEL_IGNORED;
        b->start_BT[at] = 0, b->end_BT[at] = b->T;
        if (b->has_weights) b->weight_BT[at] = 0;
    }
}

void batch_fill_random(struct batch *b, int V)
{
    size_t tokens = (size_t)b->B * (size_t)b->T;
    for (size_t n = 0; n < tokens; n++) {
        b->ids_BT[n] = (int32_t)rng_below((uint64_t)V, 1, RNG_TEST, 0, n);
        b->labels_BT[n] = (int32_t)rng_below((uint64_t)V, 1, RNG_TEST, 1, n);
        b->start_BT[n] = 0;
        b->end_BT[n] = b->T;
        if (b->has_weights) b->weight_BT[n] = 1;
    }
    b->valid = (int64_t)tokens;
}

enum status batch_upload(const struct batch *b, struct queue *queue, struct arena *step,
                         struct batch *out)
{
    *out = *b;
    if (!queue_device_allocator(queue)) return STATUS_OK;
    set_arrays(out, arena_alloc(step, b->stride, BLOCK_ARRAYS * sizeof *b->block));
    TRY(queue_upload(queue, out->block, b->block, b->stride * BLOCK_ARRAYS * sizeof *b->block));
    if (!b->has_weights) return STATUS_OK;
    size_t tokens = (size_t)b->B * (size_t)b->T;
    out->weight_BT = arena_alloc(step, tokens, sizeof *out->weight_BT);
    TRY(queue_copy(queue, out->weight_BT, b->weight_BT, tokens * sizeof *b->weight_BT));
    return STATUS_OK;
}

enum status batch_broadcast(struct batch *b, const struct comm *peers)
{
    void *const arrays[] = {b->ids_BT, b->labels_BT, b->start_BT, b->end_BT, b->weight_BT};
    size_t bytes = (size_t)b->B * (size_t)b->T * sizeof *b->ids_BT;
    int64_t counts[] = {b->valid, b->bytes, b->padding};
    if (peers->size == 1) return STATUS_OK;
    for (int i = 0; i < 4 + b->has_weights; i++) {
        struct transfer t = {TRANSFER_broadcast, .count = bytes, .x = arrays[i], .is_bytes = true};
        TRY(comm_run(peers, &t));
    }
    TRY(comm_broadcast_bytes(peers, 0, counts, sizeof counts));
    b->valid = counts[0], b->bytes = counts[1], b->padding = counts[2];
    return STATUS_OK;
}

void batch_alloc_part(const struct batch *whole, const struct comm *contexts, struct batch *local,
                      struct arena *run)
{
    *local = *whole;
    if (contexts->size == 1) return;
    batch_alloc(local, whole->B, whole->T / contexts->size, run);
    if (whole->has_weights) batch_alloc_weights(local, run);
}

void batch_copy_part(const struct batch *whole, const struct comm *contexts, bool causal,
                     struct batch *local)
{
    struct context cut = {contexts->size, contexts->rank, causal};
    const void *const from[] = {whole->ids_BT, whole->labels_BT, whole->start_BT, whole->end_BT,
                                whole->weight_BT};
    void *const to[] = {local->ids_BT, local->labels_BT, local->start_BT, local->end_BT,
                        local->weight_BT};
    struct token_run runs[MAX_TOKEN_RUNS];
    int num_runs = context_runs(&cut, local->T, runs);
    local->valid = whole->valid, local->bytes = whole->bytes, local->padding = whole->padding;
    if (contexts->size == 1) return;
    for (int i = 0; i < 4 + whole->has_weights; i++)
        for (int b = 0; b < whole->B; b++)
            for (int r = 0; r < num_runs; r++)
                memcpy(element(to[i], (size_t)b * (size_t)local->T + (size_t)runs[r].at, F32),
                       element(from[i], (size_t)b * (size_t)whole->T + (size_t)runs[r].first, F32),
                       (size_t)runs[r].count * sizeof(float));
}
