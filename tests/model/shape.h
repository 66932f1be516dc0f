/* shape.h -- the shape of a small model, for tests to vary. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/layout.h"

static inline struct model_shape small_shape(void)
{
    return (struct model_shape){.V = 37,
                                .D = 16,
                                .L = 2,
                                .H = 4,
                                .G = 2,
                                .K = 4,
                                .F = 24,
                                .rope_theta = 1e4,
                                .norm_eps = 1e-5,
                                .depth_init = true,
                                .max_context = 64};
}
