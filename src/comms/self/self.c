// SPDX-License-Identifier: Apache-2.0
#include "comms/self/self.h"

/* Of one rank's values, each is its own sum and its own maximum. */
static enum status keep(const struct comm *c, enum reduction how, double *values, size_t count)
{
    (void)c, (void)how, (void)values, (void)count;
    return STATUS_OK;
}

struct comm comm_self(void) { return (struct comm){.rank = 0, .size = 1, .reduce = keep}; }
