/* mpi.h (comm/mpi) -- groups of ranks that exchange host memory by MPI.
 *
 * Threads  A progress thread makes every MPI call but those of mpi_abort, so transfers proceed
 *          while the program computes (progress.h).
 * Ranks    A process opens it at most once; opening is collective.
 * Errors   COMM: MPI reports an error.  When a rank hangs or has died, no function returns: one
 *          rank reports it, and all end (heartbeat.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "comm/comm.h"

/* Opens the group of all ranks. */
enum status mpi_open(struct comm *world);
/* `how` the run ended.  If it ended well this is collective.  After a local failure this does not
 * wait for other ranks, which may still be in a transfer with this one: the program must then end
 * with mpi_abort. */
void mpi_close(struct comm *world, enum status how);
/* MPI_Abort: ends every rank of the run, this one with exit_code.  Returns only if MPI is not
 * initialized: before mpi_open, or after a run that ended well was closed. */
void mpi_abort(int exit_code);

/* The MPI library, and the launchers whose ranks it can join. */
extern const char mpi_library[], mpi_launchers[];
/* Appends the version that the loaded library reports, its first line. */
void mpi_add_version(struct text *out);
/* Whether the library recognizes the launcher of this process.  Under another one some libraries
 * end the process in MPI_Init. */
bool mpi_knows_launcher(void);
