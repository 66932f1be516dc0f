/* element.h -- reads and writes one element of an f32 or bf16 buffer as f32. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"

#include <stddef.h>

static inline float element_get(const void *x, size_t i, enum dtype dtype)
{
    return dtype == F32 ? ((const float *)x)[i] : bf16_to_f32(((const bf16 *)x)[i]);
}

static inline void element_set(void *x, size_t i, enum dtype dtype, float value)
{
    if (dtype == F32)
        ((float *)x)[i] = value;
    else
        ((bf16 *)x)[i] = bf16_from_f32(value);
}
