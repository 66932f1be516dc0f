// SPDX-License-Identifier: Apache-2.0
#include "train/batch.h"

#include "ops/context.h"

#include <string.h>

enum { NUM_ARRAYS = 4 };

void batch_alloc(struct batch *b, int B, int T, struct arena *run)
{
    size_t tokens = (size_t)B * (size_t)T;
    *b = (struct batch){.B = B, .T = T};
    b->ids_BT = arena_take(run, tokens, sizeof *b->ids_BT);
    b->labels_BT = arena_take(run, tokens, sizeof *b->labels_BT);
    b->start_BT = arena_take(run, tokens, sizeof *b->start_BT);
    b->end_BT = arena_take(run, tokens, sizeof *b->end_BT);
}

enum status batch_broadcast(struct batch *b, const struct comm *peers)
{
    int32_t *const arrays[NUM_ARRAYS] = {b->ids_BT, b->labels_BT, b->start_BT, b->end_BT};
    double counts[] = {(double)b->valid, (double)b->bytes};
    if (peers->size == 1) return STATUS_OK;
    for (int i = 0; i < NUM_ARRAYS; i++) { /* int32 travels as F32, which has the same size */
        struct transfer t = {TRANSFER_broadcast, F32, (size_t)b->B * (size_t)b->T, .x = arrays[i]};
        TRY(comm_run(peers, &t));
    }
    if (peers->rank) counts[0] = counts[1] = 0;
    TRY(comm_all_reduce(peers, REDUCE_SUM, counts, 2));
    b->valid = (int64_t)counts[0], b->bytes = (int64_t)counts[1];
    return STATUS_OK;
}

void batch_alloc_local(const struct batch *whole, const struct comm *contexts, struct batch *local,
                       struct arena *run)
{
    *local = *whole;
    if (contexts->size > 1) batch_alloc(local, whole->B, whole->T / contexts->size, run);
}

void batch_copy_local(const struct batch *whole, const struct comm *contexts, bool causal,
                      struct batch *local)
{
    struct context part = {contexts->size, contexts->rank, causal};
    const int32_t *const from[NUM_ARRAYS] = {whole->ids_BT, whole->labels_BT, whole->start_BT,
                                             whole->end_BT};
    int32_t *const to[NUM_ARRAYS] = {local->ids_BT, local->labels_BT, local->start_BT,
                                     local->end_BT};
    struct token_run runs[MOST_RUNS];
    int num_runs = context_runs(&part, local->T, runs);
    local->valid = whole->valid, local->bytes = whole->bytes;
    if (contexts->size == 1) return;
    for (int i = 0; i < NUM_ARRAYS; i++)
        for (int b = 0; b < whole->B; b++)
            for (int r = 0; r < num_runs; r++)
                memcpy(to[i] + (size_t)b * (size_t)local->T + (size_t)runs[r].at,
                       from[i] + (size_t)b * (size_t)whole->T + (size_t)runs[r].first,
                       (size_t)runs[r].count * sizeof *to[i]);
}

struct microbatch batch_microbatch(const struct batch *b, int i, int count, bool documents)
{
    struct microbatch micro = {.B = b->B / count, .T = b->T};
    size_t first = (size_t)i * (size_t)micro.B * (size_t)micro.T;
    if (!b->ids_BT && documents) micro.start_BT = micro.end_BT = microbatch_bounds;
    if (!b->ids_BT) return micro;
    micro.ids_BT = b->ids_BT + first;
    micro.labels_BT = b->labels_BT + first;
    micro.start_BT = documents ? b->start_BT + first : NULL;
    micro.end_BT = documents ? b->end_BT + first : NULL;
    return micro;
}
