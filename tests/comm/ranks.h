/* ranks.h (tests) -- ranks that are threads of this process, so that what runs on many ranks is
 * tested without a launcher, and under sanitizers. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* Calls body(world, context) on `size` ranks at once.  The first failure of any of them is told. */
enum status ranks_run(int size, enum status (*body)(const struct comm *world, void *context),
                      void *context);

/* In a body, where no CHECK may be: a failure of this rank. */
#define RANK_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) FAIL(DATA, "%s:%d: %s", __FILE__, __LINE__, #cond);                           \
    } while (0)
