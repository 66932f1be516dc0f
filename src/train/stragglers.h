/* stragglers.h -- finds ranks that need longer for their part of a step than their peers.
 *
 * Time     What a rank is busy: the step without waiting for other ranks or the device.  Of every
 *          STRAGGLERS_STEPS steps the shortest counts, as other programs on the host can only
 *          lengthen it.
 * Peers    Ranks of one pipeline stage, which do the same work.
 * Ranks    All ranks exchange their times every STRAGGLERS_STEPS steps; rank 0 compares them and
 *          warns.  A GPU's time is the host's waiting, so a slow GPU is not found. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

enum {
    STRAGGLERS_STEPS = 10,   /* between two comparisons */
    STRAGGLERS_WINDOWS = 4,  /* a rank is named when it was slow in this many in a row */
    STRAGGLERS_REPEAT = 100, /* and again after this many */
};

struct straggler_sample {
    double busy_s, step_s; /* without waiting; in all */
    int64_t peers;         /* the same for ranks that do the same work */
};

struct straggler {
    int rank;
    double busy_s, typical_s; /* its own; the median of its peers */
};

struct stragglers {
    int size;
    struct straggler_sample shortest; /* of this rank, since the last comparison */
    int num_steps;
    char (*hosts)[64];                /* of all ranks */
    int *strikes;                     /* comparisons in a row in which a rank was slow */
    struct straggler_sample *samples; /* of all ranks */
};

/* `peers`: see straggler_sample.  Collective.  COMM: a rank failed. */
enum status stragglers_open(struct stragglers *s, const struct comm *world, int peers);
void stragglers_close(struct stragglers *s);

/* Counts a step of this rank; every STRAGGLERS_STEPS steps collective.  COMM: a rank failed. */
enum status stragglers_add(struct stragglers *s, const struct comm *world,
                           struct straggler_sample step);
/* Compares s->samples; returns the number of ranks to be named, and these. */
int stragglers_compare(struct stragglers *s, struct straggler *found);
