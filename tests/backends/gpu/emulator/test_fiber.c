// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/fiber.h"

#include "test.h"

struct counter {
    struct fiber host, fiber;
    double sum; /* lives in a register of the fiber's between switches */
    int calls;
};

static void add_up(void *context)
{
    struct counter *c = context;
    volatile unsigned char much[1 << 14] = {1};
    for (double sum = 0;; c->calls++) {
        sum += c->calls + much[0];
        c->sum = sum;
        fiber_switch(&c->fiber, &c->host);
    }
}

TEST(fibers_take_turns_and_keep_what_they_had)
{
    struct counter c[2] = {0};
    for (int i = 0; i < 2; i++) fiber_make(&c[i].fiber, add_up, &c[i]);
    for (int turn = 0; turn < 10; turn++)
        for (int i = 0; i < 2; i++)
            if (i == 0 || turn % 2 == 0) fiber_switch(&c[i].host, &c[i].fiber);
    CHECK(c[0].calls == 9 && c[0].sum == 55);
    CHECK(c[1].calls == 4 && c[1].sum == 15);
}
