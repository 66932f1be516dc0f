/* mpi_heartbeat.h (comm/mpi) -- carries heartbeats by MPI.
 *
 * Threads  As MPI's calls: the progress thread's. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/heartbeat.h"

/* `world` is a communicator as a Fortran handle (MPI_Comm_c2f); `end` ends all ranks with an exit
 * code.  The caller frees the link, with free.  Collective.  COMM: MPI reports an error. */
enum status mpi_heartbeat_make(int world, void (*end)(int exit_code), struct heartbeat_link **out);
