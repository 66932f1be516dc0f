/* element.h -- the address of an element of a buffer whose dtype is known at run time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"

/* Address of base[index]; NULL for a NULL base, as in a sizing pass. */
static inline void *element(const void *base, size_t index, enum dtype dtype)
{
    return base ? (unsigned char *)(uintptr_t)base + index * dtype_bytes(dtype) : NULL;
}
