/* transports.h (tests) -- what a transport of launched ranks must do, besides the contract of
 * comm.h: RANKS named contract, failed_check, overlap, any_order, failure and truncated, for
 * launched_run and launched_run_here. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

enum { TRANSPORT_RANKS = 4 };

/* launched_run or launched_run_here. */
typedef int (*transport_launcher)(int size, const char *name, struct text *err);

/* Runs RANKS(name), which must succeed; skips the test where no launcher is installed. */
void transport_check(transport_launcher launch, const char *name);
/* The same for ranks of which one fails: its exit code and message become the run's. */
void transport_check_failure(transport_launcher launch, const char *name, enum status want,
                             const char *message);
