/* mpi.h (comm/mpi) -- ranks that MPI carries tensors between.
 *
 * Order    Every call of MPI is made by one thread of its own, which moves all transfers on while
 *          the program computes (progress.h).
 * Ranks    A run on many ranks has one of these; it is opened and closed by all of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* The group of all ranks.  COMM: MPI's own complaint. */
enum status mpi_open(struct comm *world);
/* Collective where the run ended well.  Where it did not (`how`), others may be in a transfer with
 * this rank: nothing is waited for, and the program is to end with mpi_abort. */
void mpi_close(struct comm *world, enum status how);
/* Ends every rank of the run, this one with exit_code; returns only if MPI is not there to do so,
 * before mpi_open or after a close that went well. */
void mpi_abort(int exit_code);

/* The library, and how ranks are started that it knows as such. */
extern const char mpi_library[], mpi_launchers[];
/* Whether the library may be opened under what started this process; some end it. */
bool mpi_knows_launcher(void);
