/* problems.h -- failures that are collected, so that a user sees all of them at once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>

struct problems {
    char **messages; /* owned, in the order in which they were found */
    size_t count;
    struct failure first;
};

/* Adds this thread's last failure, `s`, unless it is OK or has the message of an earlier one.
 * Returns s. */
enum status problems_add(struct problems *p, enum status s);
void problems_release(struct problems *p);
/* The status of the first problem, which becomes this thread's last failure; OK without a problem.
 * Several are logged here, in order, and so count as reported. */
enum status problems_report(const struct problems *p);
