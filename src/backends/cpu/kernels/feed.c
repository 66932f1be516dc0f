/* feed.c (cpu) -- the inner loop of products over panels that lie in a cache: what a product could
 * reach if packing and memory were free. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"

enum { STEPS = 24 }; /* at most, as products cut K */

double KERNEL(feed)(const void *panels, size_t bytes, long rounds)
{
    enum panel_kind kind = KERNEL(panel_kind)();
    size_t pair = 2 * panel_step_bytes(kind), steps = bytes / pair < STEPS ? bytes / pair : STEPS;
    BUG_IF(!steps);
    size_t pairs = bytes / (steps * pair);
    float sums[PANEL * PANEL] __attribute__((aligned(64)));
    tiles_open();
    for (long r = 0; r < rounds; r++)
        for (size_t i = 0; i < pairs; i++) {
            const char *left = (const char *)panels + i * steps * pair;
            KERNEL(panel_multiply)
            (kind, steps, panel_packed(kind, left), left + steps * pair / 2, sums, false);
        }
    tiles_close();
    return 2.0 * PANEL * PANEL * PANEL * (double)(steps * pairs) * (double)rounds;
}
