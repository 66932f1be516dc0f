/* suggest.h -- for messages: the closest valid values to an invalid one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* "; try 2 or 4", "; try 2", or "" if no value in least..most is valid. */
struct suggestion {
    char text[64];
};
/* The closest valid values below and above; looks at most 2^20 values in each direction. */
struct suggestion suggest_values(int64_t value, int64_t least, int64_t most,
                                 bool (*is_valid)(int64_t value, const void *context),
                                 const void *context);
