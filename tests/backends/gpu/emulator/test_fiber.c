// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/fiber.h"

#include "test.h"

struct counter {
    struct fiber host, fiber;
    double sum; /* also kept in one of the fiber's registers between switches */
    int calls;
};

static void accumulate(void *context)
{
    struct counter *c = context;
    volatile unsigned char large[1 << 14] = {1};
    for (double sum = 0;; c->calls++) {
        sum += c->calls + large[0];
        c->sum = sum;
        fiber_switch(&c->fiber, &c->host);
    }
}

TEST(fibers_switch_and_keep_their_stack_and_registers)
{
    struct counter c[2] = {0};
    for (int i = 0; i < 2; i++) fiber_make(&c[i].fiber, accumulate, &c[i]);
    for (int turn = 0; turn < 10; turn++)
        for (int i = 0; i < 2; i++)
            if (i == 0 || turn % 2 == 0) fiber_switch(&c[i].host, &c[i].fiber);
    CHECK(c[0].calls == 9 && c[0].sum == 55);
    CHECK(c[1].calls == 4 && c[1].sum == 15);
}
