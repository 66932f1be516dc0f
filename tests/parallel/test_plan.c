// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/plan.h"

TEST(crossings_alone_leave_the_tensor_as_it_is)
{
    const struct plan *p = plan_alone();
    float x[6] = {1, 2, 3, 4, 5, 6}, before[6];
    memcpy(before, x, sizeof x);
    for (enum boundary at = 0; at < BOUNDARY_COUNT; at++)
        for (enum direction way = 0; way < DIRECTION_COUNT; way++) {
            struct crossing c = {x, 2, 3, F32};
            CHECK_STATUS(OK, p->cross(p, at, way, &c, NULL));
            CHECK(c.x == x && c.rows == 2 && c.columns == 3);
        }
    CHECK(!memcmp(x, before, sizeof x));
}
