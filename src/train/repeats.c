// SPDX-License-Identifier: Apache-2.0
#include "train/repeats.h"

#include "base/heap.h"
#include "base/log.h"
#include "data/source.h"

#include <stdlib.h>
#include <string.h>

/* Finds the latest epoch of each source on any rank. */
static enum status find_latest(struct repeats *r, const struct loader *l, const struct comm *world)
{
    size_t n = r->data->num_sources;
    for (size_t i = 0; i < n; i++) r->latest[i] = l ? (int64_t)loader_epoch(l, i) : 0;
    return comm_all_reduce_int64(world, REDUCE_MAX, r->latest, n);
}

enum status repeats_open(struct repeats *r, const struct data_config *data, const struct loader *l,
                         const struct comm *world)
{
    size_t bytes = data->num_sources * sizeof *r->epochs;
    *r = (struct repeats){.data = data, .epochs = heap(bytes), .latest = heap(bytes)};
    TRY(find_latest(r, l, world));
    memcpy(r->epochs, r->latest, bytes);
    return STATUS_OK;
}

void repeats_close(struct repeats *r)
{
    free(r->epochs), free(r->latest);
    *r = (struct repeats){0};
}

/* Whether a power of two lies in the epochs after `before`, up to `now`, counted from 1. */
static bool has_doubled(int64_t before, int64_t now)
{
    uint64_t old = (uint64_t)before + 1, new = (uint64_t)now + 1;
    return new > old && (old ^ new) > old;
}

enum status repeats_check(struct repeats *r, const struct loader *l, int64_t step,
                          const struct comm *world)
{
    TRY(find_latest(r, l, world));
    for (size_t i = 0; i < r->data->num_sources; i++) {
        int64_t now = r->latest[i];
        if (has_doubled(r->epochs[i], now) && !world->rank)
            log_line(LOG_INFO, "%s: epoch %lld began by step %lld: its documents repeat",
                     data_config_label(&r->data->sources[i]), (long long)now + 1, (long long)step);
        if (now > r->epochs[i]) r->epochs[i] = now;
    }
    return STATUS_OK;
}
