/* fiber.h -- stacks that take turns on one thread of the host: what the emulator's threads are.
 *
 * Memory   A fiber lives on until the program ends; its maker keeps it for further use. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

struct fiber {
    void *top;              /* of the saved stack */
    const void *bottom;     /* lowest byte of its stack, and how many there are */
    size_t bytes;           /* 0 for the host's own stack, until it is known */
    void *fake;             /* AddressSanitizer's */
    void (*run)(void *arg); /* never returns */
    void *arg;
};

void fiber_make(struct fiber *f, void (*run)(void *arg), void *arg);
/* Leaves `from`, which is running, for `to`; returns when somebody switches to `from`. */
void fiber_switch(struct fiber *from, struct fiber *to);
