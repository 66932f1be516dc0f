/* agreement.h -- whether all ranks of a group hold the same values: a list of names and values on
 * each rank, compared by hash, and by content where the hashes differ.
 *
 * Ranks    A rank without entries abstains.
 * Order    The first collective is a gather of 16 bytes per rank, whatever the lists hold, so lists
 *          of any lengths can be compared, also those of different programs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "comm/comm.h"

struct agreement {
    const char *subject; /* of the message: "the configuration", "the data" */
    const char *advice;  /* its last clause: what to do */
    struct text entries; /* name, NUL, value, NUL, ... */
};
void agreement_release(struct agreement *a);

/* Appends an entry; long values are cut in messages, but compared as a whole. */
void agreement_add(struct agreement *a, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether the lists of all ranks have the same hash.  Collective.  COMM: a rank failed. */
enum status agreement_test(const struct agreement *a, const struct comm *c, bool *same);
/* Checks that they do.  Collective.  CONFIG on every rank: rank 0's message names the entries that
 * differ, their values, and the ranks and hosts that hold them.  COMM: a rank failed. */
enum status agreement_check(const struct agreement *a, const struct comm *c);

/* Checks that all ranks of the group have started the same collectives so far.  Collective.  COMM:
 * which ranks differ, and their last collectives.  Every rank of the group has the message,
 * unshared: other ranks do not know of it, so each of these reports it and aborts the run. */
enum status agreement_check_collectives(const struct comm *c);
