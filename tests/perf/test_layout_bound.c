// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_bound.h"

#include "perf/layouts.h"
#include "perf/step_simulator.h"
#include "test.h"

struct bound_test {
    struct layouts *l;
    struct layout_bounds *bounds;
    int compared;
    double tightest;
};

static void compare(void *context, const struct layout_choice *x)
{
    struct bound_test *t = context;
    struct layout_bound bound;
    struct layout_cost cost;
    bool fits;
    CHECK_STATUS(OK, layout_search_evaluate(&t->l->search, x, &cost, &fits));
    if (!fits) return;
    CHECK_STATUS(OK, layout_bounds_find(t->bounds, x, &bound));
    double ratio = bound.seconds / cost.estimate.step_s;
    CHECK(ratio <= 1 && bound.memory_bytes <= cost.memory_bytes);
    CHECK(bound.expected_s >= bound.seconds && bound.memory_bytes > 0);
    if (ratio > t->tightest) t->tightest = ratio;
    t->compared++;
}

TEST(layout_bounds_are_below_every_layouts_time_and_memory)
{
    const char *const settings[] = {"device.network_rate=1e9"};
    struct layouts l;
    layouts_open(&l, 8, 16, settings, 1);
    struct bound_test t = {.l = &l, .bounds = layout_bounds_open(&l.search.all, &l.model)};
    layout_choice_each(&l.search.all, compare, &t);
    CHECK(t.compared > 500 && t.tightest > 0.9);
    layout_bounds_close(t.bounds);
    layouts_close(&l);
}
