// SPDX-License-Identifier: Apache-2.0
#include "machine/launch.h"

#if LLAMERO_MPI
#include "comm/mpi/mpi.h"
#endif

#include "base/activity.h"
#include "comm/shm/shm.h"
#include "machine/core_split.h"
#include "machine/gpu.h"
#include "machine/gpu_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

/* Whether launch_ranks has started this process. */
static bool is_own(const struct launch *l)
{
    return l->launcher && !strcmp(l->launcher, LAUNCH_OWN);
}

#if LLAMERO_MPI
const char *launch_library(void) { return mpi_library; }
const char *launch_launchers(void) { return mpi_launchers; }
void launch_add_version(struct text *out) { mpi_add_version(out); }
bool launch_can_join(const struct launch *l)
{
    return l->size == 1 || is_own(l) || mpi_knows_launcher();
}

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

static void close_ranks(struct comm *world, enum status how) { mpi_close(world, how); }
static void abort_ranks(int exit_code) { mpi_abort(exit_code); }
#else
const char *launch_library(void) { return NULL; }
const char *launch_launchers(void) { return NULL; }
void launch_add_version(struct text *out) { (void)out; }
bool launch_can_join(const struct launch *l) { return l->size == 1 || is_own(l); }

static enum status open_ranks(struct comm *world, struct launch l)
{
    *world = (struct comm){0};
    FAIL(UNSUPPORTED,
         "%s started %d ranks, but this program was built without MPI: install Open MPI or MPICH "
         "with its headers, and rebuild",
         l.launcher, l.size);
}

static void close_ranks(struct comm *world, enum status how)
{
    (void)how;
    *world = (struct comm){0};
}

static void abort_ranks(int exit_code) { (void)exit_code; }
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
    gpu_machine_prepare_driver();
    if (is_own(&l)) return shm_join(world);
    if (l.size > 1) TRY(open_ranks(world, l));
    if (!l.launcher) TRY(check_torchrun());
    return STATUS_OK;
}

void launch_close(struct comm *world, enum status how)
{
    struct launch l = launch_find();
    if (is_own(&l))
        shm_close(world, how);
    else
        close_ranks(world, how);
}

void launch_abort(int exit_code)
{
    struct launch l = launch_find();
    if (is_own(&l))
        shm_abort(exit_code);
    else
        abort_ranks(exit_code);
}

void launch_let_rank_0_report(void)
{
    const struct timespec s = {.tv_sec = 2};
    if (launch_find().rank == 0) return;
    status_mark_reported();
    nanosleep(&s, NULL);
}

static enum status check_no_launcher(int size)
{
    struct launch l = launch_find();
    if (l.size == 1) return STATUS_OK;
    FAIL(CONFIG,
         "%s has started %d ranks already, and each would start %d: use only one of the two",
         l.launcher, l.size, size);
}

enum status launch_ranks(int size, const struct launch_gpus *gpus, bool *is_rank)
{
    enum status st = check_no_launcher(size);
    if (st) launch_let_rank_0_report();
    TRY(st);
    *is_rank = true;
    if (size == 1) return STATUS_OK;
    TRY(launcher_run(size, is_rank));
    if (!*is_rank) return STATUS_OK;
    core_split_bind(launch_find().rank, size, gpus ? gpus->nodes : NULL);
    return STATUS_OK;
}

/* A process that has opened the driver of a GPU cannot fork ranks that use it. */
static enum status find_apart(struct launch_gpus *installed)
{
    int ends[2], status = 0;
    installed->count = 0;
    if (pipe(ends)) FAIL(IO, "counting GPUs: %s", strerror(errno));
    pid_t child = fork();
    if (!child) {
        struct launch_gpus found = {.count = gpu_machine_count()};
        for (int i = 0; i < found.count && i < GPU_LIST_MAX; i++)
            found.nodes[i] = gpu_machine_numa_node(i);
        ssize_t written = write(ends[1], &found, sizeof found);
        activity_exit(written == sizeof found ? 0 : status_exit_code(STATUS_IO));
    }
    close(ends[1]);
    bool has_read = child > 0 && read(ends[0], installed, sizeof *installed) == sizeof *installed;
    close(ends[0]);
    if (child > 0) waitpid(child, &status, 0);
    if (!has_read) FAIL(DEVICE, "counting GPUs: the process that opens the driver has failed");
    return STATUS_OK;
}

void launch_select_gpus(const struct launch_gpus *installed, const struct gpu_list *list,
                        struct launch_gpus *out)
{
    out->count = list->count;
    for (int i = 0; i < list->count; i++) {
        int index = list->index[i];
        out->nodes[i] = index < GPU_LIST_MAX ? installed->nodes[index] : -1;
    }
}

enum status launch_find_gpus(const char *text, struct launch_gpus *out)
{
    struct gpu_list list;
    struct launch_gpus installed;
    if (!gpu_backend)
        FAIL(UNSUPPORTED,
             "device.gpus = \"%s\": this program was built without a GPU backend; rebuild with "
             "make CUDA=1 or HIP=1",
             text);
    TRY(find_apart(&installed));
    TRY(gpu_list_read(text, installed.count, &list));
    launch_select_gpus(&installed, &list, out);
    return STATUS_OK;
}
