// SPDX-License-Identifier: Apache-2.0
#include "machine/launch.h"

#if LLAMERO_MPI
#include "comm/mpi/mpi.h"
#endif

#include <stdlib.h>

/* The value of a variable that is a count; -1: unset or not a count. */
static int count_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (!text) return -1;
    long n = strtol(text, &end, 10);
    return end == text || *end || n < 0 || n > 1 << 24 ? -1 : (int)n;
}

struct launch launch_find(void)
{
    static const struct {
        const char *name, *rank, *size;
    } launchers[] = {
#define X(name, rank, size) {name, rank, size},
        LAUNCHER_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        struct launch l = {launchers[i].name, count_of(launchers[i].rank),
                           count_of(launchers[i].size)};
        if (l.rank >= 0 && l.rank < l.size) return l;
    }
    return (struct launch){NULL, 0, 1};
}

#if LLAMERO_MPI
const char *launch_library(void) { return mpi_library; }
const char *launch_launchers(void) { return mpi_launchers; }
void launch_add_version(struct text *out) { mpi_add_version(out); }
bool launch_can_join(const struct launch *l) { return l->size == 1 || mpi_knows_launcher(); }

static enum status open_ranks(struct comm *world, struct launch l)
{
    if (!launch_can_join(&l))
        FAIL(UNSUPPORTED,
             "%s started %d ranks, which %s, this program's library, cannot join: use %s",
             l.launcher, l.size, mpi_library, mpi_launchers);
    TRY(mpi_open(world));
    if (world->size == l.size) return STATUS_OK;
    int size = world->size;
    mpi_close(world, STATUS_COMM);
    FAIL(UNSUPPORTED, "%s started %d ranks, of which %s, this program's library, finds %d: use %s",
         l.launcher, l.size, mpi_library, size, mpi_launchers);
}

void launch_close(struct comm *world, enum status how) { mpi_close(world, how); }

void launch_abort(int exit_code) { mpi_abort(exit_code); }
#else
const char *launch_library(void) { return NULL; }
const char *launch_launchers(void) { return NULL; }
void launch_add_version(struct text *out) { (void)out; }
bool launch_can_join(const struct launch *l) { return l->size == 1; }

static enum status open_ranks(struct comm *world, struct launch l)
{
    *world = (struct comm){0};
    FAIL(UNSUPPORTED,
         "%s started %d ranks, but this program was built without MPI: install Open MPI or MPICH "
         "with its headers, and rebuild",
         l.launcher, l.size);
}

void launch_close(struct comm *world, enum status how)
{
    (void)how;
    *world = (struct comm){0};
}

void launch_abort(int exit_code) { (void)exit_code; }
#endif

/* torchrun's ranks have no MPI, and each would train alone. */
static enum status check_torchrun(void)
{
    int rank = count_of("RANK"), size = count_of("WORLD_SIZE");
    if (rank < 0 || size < 2) return STATUS_OK;
    FAIL(UNSUPPORTED,
         "RANK=%d and WORLD_SIZE=%d, as torchrun sets them: each of the %d processes would run "
         "alone; start them with `mpirun -n %d` or `srun -n %d` instead, or unset RANK and "
         "WORLD_SIZE",
         rank, size, size, size, size);
}

enum status launch_open(struct comm *world)
{
    struct launch l = launch_find();
    *world = *comm_self();
    if (l.size > 1) TRY(open_ranks(world, l));
    if (!l.launcher) TRY(check_torchrun());
    return STATUS_OK;
}
