// SPDX-License-Identifier: Apache-2.0
#include "train/stragglers.h"

#include "base/host.h"
#include "base/log.h"
#include "base/text.h"

#include <stdlib.h>

/* A rank is slow if it is busy this many times as long as the median of its peers, and if that
 * lengthens its step by this share. */
static const double min_ratio = 1.3, min_share = 0.1;

enum status stragglers_open(struct stragglers *s, const struct comm *world, int peers)
{
    size_t size = (size_t)world->size;
    *s = (struct stragglers){.size = world->size, .shortest.peers = peers};
    if (world->size == 1) return STATUS_OK;
    s->hosts = heap(size * sizeof *s->hosts);
    s->strikes = heap(size * sizeof *s->strikes);
    s->samples = heap(size * sizeof *s->samples);
    host_name(s->hosts[world->rank], sizeof *s->hosts);
    TRY(comm_all_gather_bytes(world, s->hosts, sizeof *s->hosts));
    return STATUS_OK;
}

void stragglers_close(struct stragglers *s)
{
    free(s->hosts), free(s->strikes), free(s->samples);
    *s = (struct stragglers){0};
}

static int compare_samples(const void *a, const void *b)
{
    const struct straggler_sample *x = a, *y = b;
    if (x->peers != y->peers) return x->peers < y->peers ? -1 : 1;
    return (x->busy_s > y->busy_s) - (x->busy_s < y->busy_s);
}

/* The median of the ranks with these peers, the lower one of two; `sorted` by compare_samples. */
static double median_of(const struct straggler_sample *sorted, int size, int64_t peers)
{
    int begin = 0;
    while (sorted[begin].peers != peers) begin++;
    int end = begin;
    while (end < size && sorted[end].peers == peers) end++;
    return sorted[begin + (end - begin - 1) / 2].busy_s;
}

int stragglers_compare(struct stragglers *s, struct straggler *found)
{
    size_t size = (size_t)s->size;
    struct straggler_sample *sorted = heap(size * sizeof *sorted);
    double typical_s = 0;
    int64_t peers = -1;
    int num_found = 0;
    for (size_t r = 0; r < size; r++) sorted[r] = s->samples[r];
    qsort(sorted, size, sizeof *sorted, compare_samples);
    for (int r = 0; r < s->size; r++) {
        const struct straggler_sample *own = &s->samples[r];
        if (own->peers != peers || !r) typical_s = median_of(sorted, s->size, own->peers);
        peers = own->peers;
        bool is_slow = own->busy_s >= min_ratio * typical_s &&
                       own->busy_s - typical_s >= min_share * own->step_s;
        s->strikes[r] = is_slow ? s->strikes[r] + 1 : 0;
        if (is_slow && s->strikes[r] % STRAGGLERS_REPEAT == STRAGGLERS_WINDOWS)
            found[num_found++] = (struct straggler){r, own->busy_s, typical_s};
    }
    free(sorted);
    return num_found;
}

static void warn(const struct stragglers *s, const struct straggler *f)
{
    log_rank_warning(f->rank, s->hosts[f->rank],
                     "is slow: it needs %.2f ms for its part of a step, the median of its peers is "
                     "%.2f ms (%.2f x), over %d steps",
                     1e3 * f->busy_s, 1e3 * f->typical_s, f->busy_s / f->typical_s,
                     s->strikes[f->rank] * STRAGGLERS_STEPS);
}

enum status stragglers_add(struct stragglers *s, const struct comm *world,
                           struct straggler_sample step)
{
    bool is_first = !s->num_steps++;
    if (s->size == 1) return STATUS_OK;
    step.peers = s->shortest.peers;
    if (is_first || step.busy_s < s->shortest.busy_s) s->shortest = step;
    if (s->num_steps < STRAGGLERS_STEPS) return STATUS_OK;
    s->samples[world->rank] = s->shortest;
    s->num_steps = 0;
    TRY(comm_all_gather_bytes(world, s->samples, sizeof *s->samples));
    if (world->rank) return STATUS_OK;
    struct straggler *found = heap((size_t)s->size * sizeof *found);
    int num_found = stragglers_compare(s, found);
    for (int i = 0; i < num_found; i++) warn(s, &found[i]);
    free(found);
    return STATUS_OK;
}
