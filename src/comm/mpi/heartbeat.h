/* heartbeat.h (comm/mpi) -- heartbeats: what every rank reports about itself reaches all ranks, so
 * that they find a rank that hangs or has died (comm/failure_detector.h), also where the launcher
 * does not notice it.
 *
 * Every second a rank sends the newest reports of all ranks to the ranks 1, 2, 4, ... after it, as
 * in a dissemination barrier: after log2(ranks) messages all ranks know a report.
 * Errors   When a rank hangs or has died, one rank reports it and then all end, by `end`.  The
 *          threads that wait for transfers do not return: the rank that hangs could not.
 * Threads  All functions are called by the thread that calls MPI, except heartbeat_leave and
 *          heartbeat_end. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/mpi/progress.h"

struct heartbeat;

/* `world` is a communicator as a Fortran handle (MPI_Comm_c2f); `end` ends all ranks with an exit
 * code.  Collective.  COMM: MPI reports an error. */
enum status heartbeat_make(int world, void (*end)(int exit_code), struct heartbeat **out);
/* Runs until all ranks have left. */
struct progress_job *heartbeat_job(struct heartbeat *h);
/* This rank has finished: the others need not expect more of it. */
void heartbeat_leave(struct heartbeat *h);
/* This rank has failed, and is about to end all ranks with this code; the job ends when the other
 * ranks have been told, or after a second. */
void heartbeat_end(struct heartbeat *h, int exit_code);
void heartbeat_free(struct heartbeat *h);
