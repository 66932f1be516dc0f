/* ranks.h (tests) -- ranks that are threads of this process, to test distributed code without a
 * launcher and under sanitizers. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* Calls body(world, context) on `size` ranks at once.  Returns the first failure. */
enum status ranks_run(int size, enum status (*body)(const struct comm *world, void *context),
                      void *context);

/* For bodies, where CHECK must not be used: this rank fails. */
#define RANK_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) FAIL(DATA, "%s:%d: %s", __FILE__, __LINE__, #cond);                           \
    } while (0)
