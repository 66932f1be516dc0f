/* shm.h (comm/shm) -- groups of ranks that are processes of one launcher on one host, and exchange
 * host memory through memory that they share (segment.h).
 *
 * Threads  A progress thread moves all messages, so transfers proceed while the program computes
 *          (progress.h).
 * Ranks    A process joins at most once; joining is collective.
 * Errors   When a rank hangs or has died, no function returns: one rank reports it, and the
 *          launcher ends all (heartbeat.h, launcher.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* Joins the group of all ranks as the launcher's environment says.  COMM: this process is not a
 * rank of the launcher that set them.  IO: the memory cannot be mapped. */
enum status shm_join(struct comm *world);
/* `how` the run ended.  If it ended well this is collective.  After a local failure this does not
 * wait for other ranks, which may still be in a transfer with this one: the program must then end
 * with shm_abort. */
void shm_close(struct comm *world, enum status how);
/* Ends every rank of the run; the launcher exits with exit_code.  Returns only in a process that is
 * not a rank of a launcher, or has closed its group well. */
void shm_abort(int exit_code);
