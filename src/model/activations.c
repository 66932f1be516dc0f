// SPDX-License-Identifier: Apache-2.0
#include "model/activations.h"

#include "model/residual.h"

#define AXES(m)                                                                                    \
    const size_t D = (size_t)(m)->shape.D, H = (size_t)(m)->shape.H, G = (size_t)(m)->shape.G,     \
                 F = (size_t)(m)->shape.F, Q = (size_t)(m)->shape.H * (size_t)(m)->shape.K,        \
                 P = (size_t)(m)->shape.G * (size_t)(m)->shape.K, S = residual_rows(m, N)

void activations_alloc_saved(const struct model *m, size_t N, struct activations *a,
                             struct arena *step)
{
    AXES(m);
#define X(type, name, elements, dtype, level)                                                      \
    if (a->recompute < level) a->name = arena_alloc(step, elements, dtype_bytes(dtype));
    ACTIVATION_LIST(X)
#undef X
}

void activations_alloc_shared(const struct model *m, size_t N, enum recompute recompute,
                              struct activations *shared, struct arena *step)
{
    AXES(m);
    *shared = (struct activations){.gathered_ND = residual_alloc_gathered(m, N, step)};
#define X(type, name, elements, dtype, level)                                                      \
    if (recompute >= level) shared->name = arena_alloc(step, elements, dtype_bytes(dtype));
    ACTIVATION_LIST(X)
#undef X
}
