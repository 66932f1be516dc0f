// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_search.h"

#include "base/heap.h"
#include "perf/layout_bound.h"
#include "perf/step_simulator.h"

#include <math.h>
#include <stdlib.h>

struct layout_candidate {
    struct layout_choice choice;
    struct layout_bound bound;
    size_t order; /* of the enumeration, for ties */
};

/* The fastest layout so far with these degrees. */
struct family {
    int tp, cp, pp;
    double step_s;
    struct found_layout found;
};

struct search_state {
    struct layout_search *search;
    struct layout_bounds *bounds;
    struct layout_candidate *candidates; /* owned */
    size_t count, capacity;
    struct family *families; /* owned */
    size_t num_families;
    enum status failed;
};

static void add_candidate(void *context, const struct layout_choice *x)
{
    struct search_state *s = context;
    struct layout_candidate c = {.choice = *x, .order = s->count};
    if (s->failed) return;
    s->search->considered++;
    s->failed = layout_bounds_find(s->bounds, x, &c.bound);
    if (s->failed == STATUS_CONFIG) { /* no such pipeline */
        s->failed = STATUS_OK;
        return;
    }
    if (c.bound.memory_bytes > s->search->model->hardware.memory_bytes) {
        s->search->too_large++;
        return;
    }
    if (s->count == s->capacity) {
        s->capacity = 2 * s->capacity + 64;
        s->candidates = heap_grow(s->candidates, s->capacity, sizeof *s->candidates);
    }
    s->candidates[s->count++] = c;
}

static int compare_candidates(const void *x, const void *y)
{
    const struct layout_candidate *a = x, *b = y;
    if (a->bound.expected_s != b->bound.expected_s)
        return a->bound.expected_s < b->bound.expected_s ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static struct family *family_of(struct search_state *s, const struct layout_choice *x)
{
    const int *d = x->degree;
    for (size_t i = 0; i < s->num_families; i++) {
        struct family *f = &s->families[i];
        if (f->tp == d[AXIS_tp] && f->cp == d[AXIS_cp] && f->pp == d[AXIS_pp]) return f;
    }
    s->families = heap_grow(s->families, s->num_families + 1, sizeof *s->families);
    s->families[s->num_families] =
        (struct family){.tp = d[AXIS_tp], .cp = d[AXIS_cp], .pp = d[AXIS_pp], .step_s = INFINITY};
    return &s->families[s->num_families++];
}

static int compare_families(const void *x, const void *y)
{
    const struct family *a = x, *b = y;
    if (a->step_s != b->step_s) return a->step_s < b->step_s ? -1 : 1;
    if (a->pp != b->pp) return a->pp - b->pp;
    return a->tp != b->tp ? a->tp - b->tp : a->cp - b->cp;
}

/* The time that a layout of another family must beat. */
static double slowest_kept(const struct search_state *s)
{
    double best[LAYOUT_SEARCH_BEST];
    for (int i = 0; i < LAYOUT_SEARCH_BEST; i++) best[i] = INFINITY;
    for (size_t i = 0; i < s->num_families; i++) {
        double x = s->families[i].step_s;
        for (int k = 0; k < LAYOUT_SEARCH_BEST; k++)
            if (x < best[k]) {
                double y = best[k];
                best[k] = x, x = y;
            }
    }
    return best[LAYOUT_SEARCH_BEST - 1];
}

enum status layout_search_evaluate(const struct layout_search *s, const struct layout_choice *x,
                                   struct layout_cost *cost, bool *fits)
{
    const struct cost_model *m = s->model;
    struct config c;
    struct mesh mesh;
    *fits = false;
    layout_choice_apply(x, &s->all, &c, &mesh);
    enum status st = config_check(&c, s->all.ranks);
    if (!st) st = config_fit(&c, m->shape, &mesh);
    if (st == STATUS_CONFIG) return STATUS_OK;
    TRY(st);
    TRY(layout_cost_memory(cost, m, &c, &mesh));
    if (!layout_cost_fits(cost, m)) return STATUS_OK;
    TRY(step_simulator_time(&cost->estimate, &c, m->shape, &mesh, &m->hardware));
    *fits = true;
    return STATUS_OK;
}

static enum status simulate(struct search_state *s)
{
    struct layout_search *search = s->search;
    double slowest = INFINITY;
    for (size_t i = 0; i < s->count; i++) {
        const struct layout_candidate *c = &s->candidates[i];
        struct family *f = family_of(s, &c->choice);
        struct layout_cost cost;
        bool fits;
        if (c->bound.seconds * (1 + search->tolerance) >= fmin(slowest, f->step_s)) continue;
        if (search->max_simulations && search->simulated == search->max_simulations) {
            search->is_cut = true;
            break;
        }
        search->simulated++;
        TRY(layout_search_evaluate(search, &c->choice, &cost, &fits));
        if (!fits) {
            search->too_large++;
            continue;
        }
        if (cost.estimate.step_s >= f->step_s) continue;
        f->step_s = cost.estimate.step_s;
        f->found = (struct found_layout){c->choice, cost};
        slowest = slowest_kept(s);
    }
    return STATUS_OK;
}

/* Copies the best, and finds what limits each. */
static enum status keep_best(struct search_state *s)
{
    struct layout_search *search = s->search;
    const struct cost_model *m = search->model;
    if (s->num_families) qsort(s->families, s->num_families, sizeof *s->families, compare_families);
    for (size_t i = 0; i < s->num_families && i < LAYOUT_SEARCH_BEST; i++) {
        struct found_layout *f = &search->best[search->count];
        struct config c;
        struct mesh mesh;
        if (isinf(s->families[i].step_s)) break;
        *f = s->families[i].found;
        layout_choice_apply(&f->choice, &search->all, &c, &mesh);
        TRY(step_simulator_estimate(&f->cost.estimate, &c, m->shape, &mesh, &m->hardware));
        search->count++;
    }
    return STATUS_OK;
}

enum status layout_search_run(struct layout_search *search)
{
    struct search_state s = {.search = search};
    enum status st = STATUS_OK;
    search->count = 0, search->considered = search->too_large = search->simulated = 0;
    search->is_cut = false;
    s.bounds = layout_bounds_open(&search->all, search->model);
    layout_choice_each(&search->all, add_candidate, &s);
    TRY_OUT(s.failed);
    if (s.count) qsort(s.candidates, s.count, sizeof *s.candidates, compare_candidates);
    TRY_OUT(simulate(&s));
    TRY_OUT(keep_best(&s));
out:
    layout_bounds_close(s.bounds);
    free(s.candidates);
    free(s.families);
    return st;
}
