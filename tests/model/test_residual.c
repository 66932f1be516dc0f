// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/residual.h"

TEST(residual_stream_is_divided_with_sequence_parallelism_only)
{
    struct model m = {.shape = rig_shape(), .dtype = F32};
    float x[12 * 16];
    for (int divided = 0; divided < 2; divided++) {
        struct parallel_plan plan = {.parts = 3, .part = 2, .sequence_parallel = divided};
        struct arena step = {0};
        m.plan = &plan;
        CHECK(residual_rows(&m, 12) == (divided ? 4 : 12));
        CHECK(residual_local(&m, x, 12) == (divided ? x + 8 * 16 : x));
        residual_alloc_gathered(&m, 12, &step);
        CHECK(step.used == sizeof x);
    }
    struct arena step = {0};
    m.plan = plan_single_device();
    CHECK(residual_rows(&m, 12) == 12 && !residual_alloc_gathered(&m, 12, &step) && !step.used);
}
