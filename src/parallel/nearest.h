/* nearest.h -- the values on both sides of a wrong one that are right, for messages.  */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* ": 2 or 4 would", ": 2 would", or "" where none is in least..most. */
struct nearest {
    char text[64];
};
/* Looks at most 2^20 values far, on each side. */
struct nearest nearest_find(int64_t value, int64_t least, int64_t most,
                            bool (*holds)(int64_t value, const void *context), const void *context);
