/* watch.h (comm/mpi) -- each rank tells the next one that it is there, and listens to the one
 * before: a rank that is gone, or its host, is noticed also where no launcher does.
 *
 * Ranks    They form a ring.  All functions but watch_leave are for the thread that calls MPI. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/mpi/progress.h"

enum { WATCH_SILENT_S = 10 }; /* so long, and a rank counts as gone */

struct watch;

/* `world` is a communicator as Fortran's handle.  Collective.  COMM: MPI's complaint. */
enum status watch_make(int world, struct watch **out);
/* Goes on till all have left; COMM: the rank before is gone, with its name. */
struct job *watch_job(struct watch *w);
/* This rank needs no watching any longer; its job ends when the one before has said so, too. */
void watch_leave(struct watch *w);
void watch_free(struct watch *w);
