/* suggest.h -- for messages: the closest valid values to an invalid one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct suggestion {
    char values[48]; /* "2 or 4", "2", or "" if no value in least..most is valid */
    char text[64];   /* "; try " and the values, or "" */
};
/* The closest valid values below and above; looks at most 2^20 values in each direction. */
struct suggestion suggest_values(int64_t value, int64_t least, int64_t most,
                                 bool (*is_valid)(int64_t value, const void *context),
                                 const void *context);
