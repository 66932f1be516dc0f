/* tensor_slices.h -- reads elements of every tensor that a foreign checkpoint yields. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"

/* Reads the first few elements of each tensor, and its last one. */
static inline void tensor_slices_use(const struct tensor_slices *p)
{
    enum { SOME = 8 };
    float numbers[SOME];
    for (size_t i = 0; i < p->count; i++) {
        const struct sliced_tensor *t = &p->tensors[i];
        size_t all = (size_t)(t->rows * t->columns), some = all < SOME ? all : SOME;
        if (!all) continue;
        enum status st = tensor_slices_read(p, t, 0, some, numbers);
        BUG_IF(st && st != STATUS_DATA);
        st = tensor_slices_read(p, t, all - 1, 1, numbers);
        BUG_IF(st && st != STATUS_DATA);
        tensor_slices_forget(p, t, 0, all);
    }
}
