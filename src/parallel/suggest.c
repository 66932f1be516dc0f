// SPDX-License-Identifier: Apache-2.0
#include "parallel/suggest.h"

#include <stdio.h>

enum { MAX_DISTANCE = 1 << 20 };

struct suggestion suggest_values(int64_t value, int64_t least, int64_t most,
                                 bool (*is_valid)(int64_t value, const void *context),
                                 const void *context)
{
    struct suggestion s = {"", ""};
    int64_t below = value - 1 < most ? value - 1 : most;
    int64_t above = value + 1 > least ? value + 1 : least;
    int64_t lowest = below - MAX_DISTANCE > least ? below - MAX_DISTANCE : least;
    int64_t highest = above + MAX_DISTANCE < most ? above + MAX_DISTANCE : most;
    while (below >= lowest && !is_valid(below, context)) below--;
    while (above <= highest && !is_valid(above, context)) above++;
    bool has_below = below >= lowest, has_above = above <= highest;
    if (has_below && has_above)
        snprintf(s.values, sizeof s.values, "%lld or %lld", (long long)below, (long long)above);
    else if (has_below || has_above)
        snprintf(s.values, sizeof s.values, "%lld", (long long)(has_below ? below : above));
    if (s.values[0]) snprintf(s.text, sizeof s.text, "; try %s", s.values);
    return s;
}
