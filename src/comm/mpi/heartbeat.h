/* heartbeat.h (comm/mpi) -- a heartbeat ring: each rank sends heartbeats to the next rank and
 * expects them from the previous one.  So a dead rank or host is noticed, also where the
 * launcher does not notice it.
 *
 * Threads  All functions are called by the thread that calls MPI, except heartbeat_leave. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/mpi/progress.h"

enum { HEARTBEAT_TIMEOUT_S = 10 }; /* a rank that is silent for this long counts as dead */

struct heartbeat;

/* `world` is a communicator as a Fortran handle (MPI_Comm_c2f).  Collective.  COMM: MPI reports an
 * error. */
enum status heartbeat_make(int world, struct heartbeat **out);
/* Runs until this rank and the previous one have left.  COMM: the previous rank died; the
 * message names it and its host. */
struct progress_job *heartbeat_job(struct heartbeat *h);
/* This rank is about to end: its last heartbeat announces that to the next rank. */
void heartbeat_leave(struct heartbeat *h);
void heartbeat_free(struct heartbeat *h);
