/* launch.h (comms) -- the ranks this process was started with, whatever carries between them.
 *
 * Ranks    What started the process says in the environment how many there are.  One alone, also
 *          inside a batch script, opens no library. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* name, and the variables that it sets: one's rank, how many there are */
#define LAUNCHER_LIST(X)                                                                           \
    X("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")                         \
    X("srun --mpi=pmix", "PMIX_RANK", "SLURM_STEP_NUM_TASKS")                                      \
    X("MPICH's mpirun or srun --mpi=pmi2", "PMI_RANK", "PMI_SIZE")                                 \
    X("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")

struct launch {
    const char *launcher; /* NULL: none */
    int rank, size;
};
struct launch launch_find(void);

/* The library that carries between ranks, and how ranks are started that it knows as such; NULL:
 * this program was built without one. */
const char *launch_library(void), *launch_ways(void);
/* Whether this program can join the ranks that l started with it. */
bool launch_knows(const struct launch *l);

/* The group of all ranks.  UNSUPPORTED: this program cannot speak to what started it; the message
 * says how to start it.  COMM: the ranks do not reach each other. */
enum status launch_open(struct comm *world);
/* `how` the run ended: see mpi_close. */
void launch_close(struct comm *world, enum status how);
/* For a program that ends with a failure: ends all ranks, and returns where there is but one. */
void launch_abort(int exit_code);
