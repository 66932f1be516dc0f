// SPDX-License-Identifier: Apache-2.0
#include "parallel/cores.h"

#include "base/text.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a rank may run, as all others learn it. */
struct seat {
    char host[64];
    unsigned char cores[THREAD_CORE_BYTES];
};
_Static_assert(sizeof(struct seat) % sizeof(float) == 0, "it travels as floats");

static bool has_core_in_common(const struct seat *a, const struct seat *b)
{
    if (strcmp(a->host, b->host) != 0) return false;
    for (size_t i = 0; i < sizeof a->cores; i++)
        if (a->cores[i] & b->cores[i]) return true;
    return false;
}

/* Every rank's seat; to be freed, also after a failure. */
static enum status gather_seats(const struct comm *world, struct seat **seats)
{
    struct seat *mine = (*seats = heap((size_t)world->size * sizeof **seats)) + world->rank;
    gethostname(mine->host, sizeof mine->host - 1);
    thread_core_set(mine->cores);
    struct transfer t = {TRANSFER_all_gather, F32, sizeof *mine / sizeof(float), .x = *seats};
    TRY(comm_run(world, &t));
    return STATUS_OK;
}

enum status cores_share(const struct comm *world, int *cores)
{
    struct seat *seats;
    enum status st = STATUS_OK;
    int sharing = 0;
    TRY_OUT(gather_seats(world, &seats));
    for (int r = 0; r < world->size; r++)
        sharing += r == world->rank || has_core_in_common(&seats[r], &seats[world->rank]);
    *cores = thread_cores() / sharing > 1 ? thread_cores() / sharing : 1;
out:
    free(seats);
    return st;
}

enum status cores_local(const struct comm *world, int *local)
{
    struct seat *seats;
    enum status st = STATUS_OK;
    TRY_OUT(gather_seats(world, &seats));
    *local = 0;
    for (int r = 0; r < world->rank; r++) *local += !strcmp(seats[r].host, seats[world->rank].host);
out:
    free(seats);
    return st;
}

enum status cores_hosts(const struct comm *world, struct text *line)
{
    struct seat *seats;
    struct text names = {0};
    enum status st = STATUS_OK;
    int hosts = 0;
    TRY_OUT(gather_seats(world, &seats));
    for (int r = 0; r < world->size; r++) {
        int first = 0;
        while (strcmp(seats[first].host, seats[r].host) != 0) first++;
        if (first == r) text_addf(&names, "%s%s", hosts++ ? " " : "", seats[r].host);
    }
    text_addf(line, "%d on %d host%s (%s)", world->size, hosts, hosts == 1 ? "" : "s", names.data);
out:
    text_release(&names);
    free(seats);
    return st;
}
