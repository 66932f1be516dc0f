// SPDX-License-Identifier: Apache-2.0
#include "parallel/nearest.h"

#include <stdio.h>

enum { FARTHEST = 1 << 20 };

struct nearest nearest_find(int64_t value, int64_t least, int64_t most,
                            bool (*holds)(int64_t value, const void *context), const void *context)
{
    struct nearest n = {""};
    int64_t below = value - 1 < most ? value - 1 : most;
    int64_t above = value + 1 > least ? value + 1 : least;
    int64_t lowest = below - FARTHEST > least ? below - FARTHEST : least;
    int64_t highest = above + FARTHEST < most ? above + FARTHEST : most;
    while (below >= lowest && !holds(below, context)) below--;
    while (above <= highest && !holds(above, context)) above++;
    if (below >= lowest && above <= highest)
        snprintf(n.text, sizeof n.text, ": %lld or %lld would", (long long)below, (long long)above);
    else if (below >= lowest || above <= highest)
        snprintf(n.text, sizeof n.text, ": %lld would",
                 (long long)(below >= lowest ? below : above));
    return n;
}
