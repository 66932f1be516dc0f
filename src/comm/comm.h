/* comm.h -- a group of ranks and what it can do together.
 *
 * Filled in by comms/self (one rank) and by transports that join several.
 * Ranks    Every function is collective: all ranks of the group call it, in the same order, with
 *          the same operation and count.
 * Order    A sum has the same bits on all ranks, and the same bits run after run. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>

enum reduction { REDUCE_SUM, REDUCE_MAX };

struct comm {
    int rank, size;
    /* values[i] becomes the reduction of all ranks' values[i].  COMM: a rank is gone. */
    enum status (*reduce)(const struct comm *c, enum reduction how, double *values, size_t count);
};

/* As `reduce` above; NaN anywhere gives NaN everywhere, also for the maximum. */
enum status comm_all_reduce(const struct comm *c, enum reduction how, double *values, size_t count);

/* Makes a failure common: every rank passes what it has and all go on only if all are fine.  A rank
 * that failed gets its own status back, message and trace untouched; the others get the status of
 * the lowest rank that failed, and a message that names this rank. */
enum status comm_agree(const struct comm *c, enum status mine);
