/* launch.h (machine) -- the ranks that this process was launched with, and the transport between
 * them.
 *
 * Ranks    The launcher's environment variables give the number of ranks.  A single rank opens no
 *          communication library, even inside a batch script. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "comm/comm.h"
#include "comm/shm/launcher.h"
#include "machine/gpu_list.h"

/* The launcher of launch_ranks, for messages. */
#define LAUNCH_OWN "llamero --ranks"

/* launcher, and the variables that it sets: this process's rank, the number of ranks */
#define LAUNCHER_LIST(X)                                                                           \
    X(LAUNCH_OWN, LAUNCHER_RANK, LAUNCHER_RANKS)                                                   \
    X("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")                         \
    X("srun --mpi=pmix", "PMIX_RANK", "SLURM_STEP_NUM_TASKS")                                      \
    X("MPICH's mpirun, srun --mpi=pmi2 or --mpi=cray_shasta", "PMI_RANK", "PMI_SIZE")              \
    X("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")

struct launch {
    const char *launcher; /* NULL: none */
    int rank, size;
};
struct launch launch_find(void);

/* GPUs of this host, such as those that ranks start for, one each. */
struct launch_gpus {
    int count, nodes[GPU_LIST_MAX]; /* their NUMA nodes; -1: unknown */
};

/* Starts `size` ranks on this host, which need no MPI; as launcher_run, but a single rank is this
 * process.  Several are bound to the NUMA nodes of their GPUs, one each; if one is unknown or has
 * too few usable cores, or `gpus` is NULL, to their parts of the nodes (core_split.h).  CONFIG: a
 * launcher has started this process as one of several ranks. */
enum status launch_ranks(int size, const struct launch_gpus *gpus, bool *is_rank);

/* The MPI library that this program was built with, and the launchers that work with it; NULL:
 * built without MPI. */
const char *launch_library(void), *launch_launchers(void);
/* Appends the version of the MPI library that is loaded, which may be newer; built with MPI. */
void launch_add_version(struct text *out);
/* Whether this program can join the ranks that were launched with it. */
bool launch_can_join(const struct launch *l);

/* The GPUs for which device.gpus = `text` starts ranks; opens none in this process.  UNSUPPORTED:
 * this program was built without a GPU backend.  CONFIG, DEVICE: as gpu_list_read. */
enum status launch_find_gpus(const char *text, struct launch_gpus *out);

/* Those of `installed` that a list selects, in its order; beyond GPU_LIST_MAX no node is known. */
void launch_select_gpus(const struct launch_gpus *installed, const struct gpu_list *list,
                        struct launch_gpus *out);

/* Each rank has found the same failure on its own.  Only rank 0 reports it.  The others wait,
 * because a launcher may end all ranks as soon as one has ended. */
void launch_let_rank_0_report(void);

/* Opens the group of all ranks.  UNSUPPORTED: the library cannot join ranks of this launcher, or
 * torchrun started several; the message names launchers that work.  COMM: the ranks cannot
 * connect. */
enum status launch_open(struct comm *world);
/* `how` the run ended: see mpi_close and shm_close. */
void launch_close(struct comm *world, enum status how);
/* For a program that ends with a failure: ends all ranks.  Returns if there is only one. */
void launch_abort(int exit_code);
