/* op_sizes.h -- the sizes of an operation's call as text, for tables and traces. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "perf/op.h"

/* Formats the sizes: "4096 x 768 -> 1280".  Two calls of an operation with the same text do the
 * same work. */
void op_sizes(const struct op_call *c, struct text *out);
