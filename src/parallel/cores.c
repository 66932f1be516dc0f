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

enum status cores_share(const struct comm *world, int *cores)
{
    struct seat *seats = heap((size_t)world->size * sizeof *seats), *mine = &seats[world->rank];
    enum status st = STATUS_OK;
    int sharing = 0;
    gethostname(mine->host, sizeof mine->host - 1);
    thread_core_set(mine->cores);
    struct transfer t = {TRANSFER_all_gather, F32, sizeof *seats / sizeof(float), .x = seats};
    TRY_OUT(comm_run(world, &t));
    for (int r = 0; r < world->size; r++)
        sharing += r == world->rank || has_core_in_common(&seats[r], mine);
    *cores = thread_cores() / sharing > 1 ? thread_cores() / sharing : 1;
out:
    free(seats);
    return st;
}
