// SPDX-License-Identifier: Apache-2.0
#include "machine/cores.h"

#include "base/host.h"
#include "base/text.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

/* A rank's host and the cores it may use, as it sends them to all others. */
struct affinity {
    char host[64];
    unsigned char cores[THREAD_CORE_BYTES];
};

static bool has_core_in_common(const struct affinity *a, const struct affinity *b)
{
    if (strcmp(a->host, b->host) != 0) return false;
    for (size_t i = 0; i < sizeof a->cores; i++)
        if (a->cores[i] & b->cores[i]) return true;
    return false;
}

/* Every rank's affinity; the caller frees it, also after a failure. */
static enum status gather_affinities(const struct comm *world, struct affinity **ranks)
{
    struct affinity *mine = (*ranks = heap((size_t)world->size * sizeof **ranks)) + world->rank;
    host_name(mine->host, sizeof mine->host);
    thread_core_mask(mine->cores);
    TRY(comm_all_gather_bytes(world, *ranks, sizeof *mine));
    return STATUS_OK;
}

enum status cores_per_rank(const struct comm *world, int *cores)
{
    struct affinity *ranks;
    enum status st = STATUS_OK;
    int sharing = 0;
    TRY_OUT(gather_affinities(world, &ranks));
    for (int r = 0; r < world->size; r++)
        sharing += r == world->rank || has_core_in_common(&ranks[r], &ranks[world->rank]);
    *cores = thread_cores() / sharing > 1 ? thread_cores() / sharing : 1;
out:
    free(ranks);
    return st;
}

/* Ranks below `end` that are on this rank's host. */
static enum status count_on_host(const struct comm *world, int end, int *count)
{
    struct affinity *ranks;
    enum status st = STATUS_OK;
    TRY_OUT(gather_affinities(world, &ranks));
    *count = 0;
    for (int r = 0; r < end; r++) *count += !strcmp(ranks[r].host, ranks[world->rank].host);
out:
    free(ranks);
    return st;
}

enum status cores_local_rank(const struct comm *world, int *local)
{
    return count_on_host(world, world->rank, local);
}

enum status cores_host_ranks(const struct comm *world, int *count)
{
    return count_on_host(world, world->size, count);
}

enum status cores_describe_hosts(const struct comm *world, struct text *line)
{
    struct affinity *ranks;
    struct text names = {0};
    enum status st = STATUS_OK;
    int hosts = 0;
    TRY_OUT(gather_affinities(world, &ranks));
    for (int r = 0; r < world->size; r++) {
        int first = 0;
        while (strcmp(ranks[first].host, ranks[r].host) != 0) first++;
        if (first == r) text_addf(&names, "%s%s", hosts++ ? " " : "", ranks[r].host);
    }
    text_addf(line, "%d on %d host%s (%s)", world->size, hosts, hosts == 1 ? "" : "s", names.data);
out:
    text_release(&names);
    free(ranks);
    return st;
}
