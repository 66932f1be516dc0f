// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_search.h"

#include "perf/layouts.h"
#include "test.h"

#include <math.h>

/* The fastest layout of each tp, cp and pp, by simulating every layout. */
struct brute_force {
    struct layouts *l;
    struct found_layout best[64];
    int count;
    int64_t considered, evaluated;
};

static void evaluate(void *context, const struct layout_choice *x)
{
    struct brute_force *b = context;
    struct layout_cost cost;
    bool fits;
    int i = 0;
    CHECK_STATUS(OK, layout_search_evaluate(&b->l->search, x, &cost, &fits));
    b->considered++;
    if (!fits) return;
    b->evaluated++;
    for (; i < b->count; i++) {
        const int *d = b->best[i].choice.degree;
        if (d[AXIS_tp] == x->degree[AXIS_tp] && d[AXIS_cp] == x->degree[AXIS_cp] &&
            d[AXIS_pp] == x->degree[AXIS_pp])
            break;
    }
    CHECK(i < 64);
    if (i == b->count)
        b->count++;
    else if (b->best[i].cost.estimate.step_s <= cost.estimate.step_s)
        return;
    b->best[i] = (struct found_layout){*x, cost};
}

static void sort(struct brute_force *b)
{
    for (int i = 0; i < b->count; i++)
        for (int k = i + 1; k < b->count; k++)
            if (b->best[k].cost.estimate.step_s < b->best[i].cost.estimate.step_s) {
                struct found_layout x = b->best[i];
                b->best[i] = b->best[k], b->best[k] = x;
            }
}

static void compare(int ranks, int64_t rows, const char *const *settings, int num_settings)
{
    struct layouts l;
    layouts_open(&l, ranks, rows, settings, num_settings);
    struct brute_force b = {.l = &l};
    layout_choice_each(&l.search.all, evaluate, &b);
    sort(&b);
    CHECK_STATUS(OK, layout_search_run(&l.search));
    CHECK(l.search.considered == b.considered && !l.search.is_cut);
    CHECK(b.evaluated && l.search.simulated < b.considered);
    CHECK(l.search.count == (b.count < LAYOUT_SEARCH_BEST ? b.count : LAYOUT_SEARCH_BEST));
    for (int i = 0; i < l.search.count; i++) {
        const struct layout_cost *found = &l.search.best[i].cost, *real = &b.best[i].cost;
        CHECK_NEAR(found->estimate.step_s / real->estimate.step_s, 1, 1e-9);
        CHECK(found->memory_bytes <= l.model.hardware.memory_bytes);
    }
    layouts_close(&l);
}

TEST(layout_search_finds_what_simulating_every_layout_finds)
{
    const char *const fast[] = {"training.max_norm=1"};
    const char *const slow_network[] = {"device.network_rate=2e8", "device.node_rate=5e9"};
    compare(4, 8, fast, 1);
    compare(8, 16, slow_network, 2);
}

/* About what the best layouts need, so that memory decides. */
TEST(layout_search_finds_the_fastest_layouts_that_fit_little_memory)
{
    const char *const little[] = {"device.memory_bytes=1.75e9"};
    const char *const none[] = {"device.memory_bytes=1.1e9"};
    struct layouts l;
    compare(8, 16, little, 1);
    layouts_open(&l, 8, 16, none, 1);
    CHECK_STATUS(OK, layout_search_run(&l.search));
    CHECK(!l.search.count && l.search.considered && l.search.too_large == l.search.considered);
    layouts_close(&l);
}

TEST(layout_search_stays_within_its_tolerance_and_its_limit)
{
    struct layouts l;
    layouts_open(&l, 16, 64, NULL, 0);
    CHECK_STATUS(OK, layout_search_run(&l.search));
    struct layout_search exact = l.search;
    l.search.tolerance = 0.02;
    CHECK_STATUS(OK, layout_search_run(&l.search));
    CHECK(l.search.simulated < exact.simulated && l.search.count == exact.count);
    for (int i = 0; i < exact.count; i++)
        CHECK(l.search.best[i].cost.estimate.step_s <= 1.02 * exact.best[i].cost.estimate.step_s);
    l.search.max_simulations = 3;
    CHECK_STATUS(OK, layout_search_run(&l.search));
    CHECK(l.search.simulated == 3 && l.search.is_cut && l.search.count > 0);
    layouts_close(&l);
}

TEST(layout_search_names_what_limits_each_layout)
{
    const char *const settings[] = {"device.network_rate=1e7", "device.node_rate=1e7"};
    struct layouts l;
    layouts_open(&l, 16, 32, settings, 2);
    CHECK_STATUS(OK, layout_search_run(&l.search));
    for (int i = 0; i < l.search.count; i++)
        CHECK(l.search.best[i].cost.estimate.saved > 0 &&
              l.search.best[i].cost.estimate.limit != RESOURCE_memory_bytes);
    CHECK(l.search.best[0].cost.estimate.limit == RESOURCE_network ||
          l.search.best[0].cost.estimate.limit == RESOURCE_node_links);
    layouts_close(&l);
}
