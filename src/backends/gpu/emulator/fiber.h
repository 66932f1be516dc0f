/* fiber.h -- stackful coroutines that switch cooperatively on one host thread; each emulated GPU
 * thread runs on one.
 *
 * Memory   A fiber is never freed; the caller keeps it for reuse until the program ends. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

struct fiber {
    void *stack_pointer;    /* saved while the fiber is switched out */
    const void *bottom;     /* lowest byte of its stack */
    size_t bytes;           /* of its stack; 0 for the host's own, until ASan reports it */
    void *fake_stack;       /* AddressSanitizer's */
    void (*run)(void *arg); /* never returns */
    void *arg;
};

void fiber_make(struct fiber *f, void (*run)(void *arg), void *arg);
/* Suspends `from`, the running fiber, and resumes `to`; returns when another fiber switches back
 * to `from`. */
void fiber_switch(struct fiber *from, struct fiber *to);
