/* patched.h -- numbers of every tensor that torch's files have, where there are any. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"

/* The first and the last of each, and some in a row. */
static inline void patched_use(const struct patches *p)
{
    enum { SOME = 8 };
    float numbers[SOME];
    for (size_t i = 0; i < p->count; i++) {
        const struct patched *t = &p->tensors[i];
        size_t all = (size_t)(t->rows * t->columns), some = all < SOME ? all : SOME;
        if (!all) continue;
        enum status st = patches_read(p, t, 0, some, numbers);
        BUG_IF(st && st != STATUS_DATA);
        st = patches_read(p, t, all - 1, 1, numbers);
        BUG_IF(st && st != STATUS_DATA);
        patches_forget(p, t, 0, all);
    }
}
