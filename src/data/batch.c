// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

#include "base/rng.h"
#include "ops/context.h"
#include "ops/cross_entropy.h"

#include <string.h>

void batch_alloc(struct batch *b, int B, int T, struct arena *run)
{
    size_t tokens = (size_t)B * (size_t)T;
    *b = (struct batch){.B = B, .T = T};
    b->ids_BT = arena_alloc(run, tokens, sizeof *b->ids_BT);
    b->labels_BT = arena_alloc(run, tokens, sizeof *b->labels_BT);
    b->start_BT = arena_alloc(run, tokens, sizeof *b->start_BT);
    b->end_BT = arena_alloc(run, tokens, sizeof *b->end_BT);
}

void batch_copy_row(struct batch *b, int i, const struct batch *row)
{
    size_t at = (size_t)i * (size_t)b->T, bytes = (size_t)b->T * sizeof(int32_t);
    memcpy(b->ids_BT + at, row->ids_BT, bytes), memcpy(b->labels_BT + at, row->labels_BT, bytes);
    memcpy(b->start_BT + at, row->start_BT, bytes), memcpy(b->end_BT + at, row->end_BT, bytes);
    b->valid += row->valid, b->bytes += row->bytes, b->padding += row->padding;
}

void batch_pad_row(struct batch *b, int i)
{
    for (int t = 0; t < b->T; t++) {
        size_t at = (size_t)i * (size_t)b->T + (size_t)t;
        b->ids_BT[at] = 0, b->labels_BT[at] = LABEL_IGNORED;
        b->start_BT[at] = 0, b->end_BT[at] = b->T;
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
    }
    b->valid = (int64_t)tokens;
}

enum status batch_broadcast(struct batch *b, const struct comm *peers)
{
    int32_t *const arrays[] = {b->ids_BT, b->labels_BT, b->start_BT, b->end_BT};
    size_t bytes = (size_t)b->B * (size_t)b->T * sizeof *b->ids_BT;
    int64_t counts[] = {b->valid, b->bytes, b->padding};
    if (peers->size == 1) return STATUS_OK;
    for (int i = 0; i < 4; i++) {
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
    if (contexts->size > 1) batch_alloc(local, whole->B, whole->T / contexts->size, run);
}

void batch_copy_part(const struct batch *whole, const struct comm *contexts, bool causal,
                     struct batch *local)
{
    struct context cut = {contexts->size, contexts->rank, causal};
    const int32_t *const from[] = {whole->ids_BT, whole->labels_BT, whole->start_BT, whole->end_BT};
    int32_t *const to[] = {local->ids_BT, local->labels_BT, local->start_BT, local->end_BT};
    struct token_run runs[MAX_TOKEN_RUNS];
    int num_runs = context_runs(&cut, local->T, runs);
    local->valid = whole->valid, local->bytes = whole->bytes, local->padding = whole->padding;
    if (contexts->size == 1) return;
    for (int i = 0; i < 4; i++)
        for (int b = 0; b < whole->B; b++)
            for (int r = 0; r < num_runs; r++)
                memcpy(to[i] + (size_t)b * (size_t)local->T + (size_t)runs[r].at,
                       from[i] + (size_t)b * (size_t)whole->T + (size_t)runs[r].first,
                       (size_t)runs[r].count * sizeof *to[i]);
}
