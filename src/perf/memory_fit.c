// SPDX-License-Identifier: Apache-2.0
#include "perf/memory_fit.h"

#include "perf/layout_choice.h"
#include "perf/step_simulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
} numerics_rows[] = {
#define X(name, text) {#name, text},
    NUMERICS_LIST(X)
#undef X
};

const char *memory_fit_numerics_name(enum numerics n) { return numerics_rows[n].name; }
const char *memory_fit_numerics_text(enum numerics n) { return numerics_rows[n].text; }

#define X(name, knob, settings, change, numerics, text)                                            \
    static void set_##name(struct config *c) { change; }
MEMORY_OPTION_LIST(X)
#undef X

static const struct memory_option rows[] = {
#define X(name, knob, settings, change, numerics, text)                                            \
    {#knob, settings, text, set_##name, NUMERICS_##numerics, NAN, NAN, false},
    MEMORY_OPTION_LIST(X)
#undef X
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)NUM_ROWS <= (int)MAX_MEMORY_OPTIONS, "too many options");

/* --- one set --- */

/* *valid false: the configuration with these options breaks a rule. */
static enum status apply(const struct memory_fit *f, const struct memory_set *s, struct config *c,
                         struct mesh *mesh, bool *valid)
{
    *c = *f->config;
    c->training.global_batch_size = f->step_rows;
    for (int i = 0; i < s->count; i++) f->options[s->options[i]].set(c);
    enum status st = config_check(c, f->ranks);
    if (!st) st = mesh_resolve(mesh, &c->parallelism, 0, f->ranks);
    if (!st) st = config_fit(c, f->model->shape, mesh);
    *valid = !st;
    return st == STATUS_CONFIG ? STATUS_OK : st;
}

static enum status find_memory(const struct memory_fit *f, struct memory_set *s, bool *fits)
{
    struct config c;
    struct mesh mesh;
    bool valid;
    *fits = false;
    s->cost.memory_bytes = INFINITY;
    TRY(apply(f, s, &c, &mesh, &valid));
    if (!valid) return STATUS_OK;
    struct cost_model model = *f->model;
    struct described_gpu gpu; /* with the set's device.deterministic */
    if (model.gpu) {
        described_gpu_open(&gpu, &c.device, &model.machine);
        model.gpu = &gpu;
    }
    enum status st = layout_cost_memory(&s->cost, &model, &c, &mesh);
    if (model.gpu) described_gpu_close(&gpu);
    TRY(st);
    *fits = layout_cost_fits(&s->cost, f->model);
    return STATUS_OK;
}

static enum status find_time(const struct memory_fit *f, struct memory_set *s)
{
    struct config c;
    struct mesh mesh;
    bool valid;
    const struct cost_model *m = f->model;
    TRY(apply(f, s, &c, &mesh, &valid));
    BUG_IF(!valid);
    TRY(step_simulator_time(&s->cost.estimate, &c, m->shape, &mesh, &m->hardware));
    return STATUS_OK;
}

/* --- each option alone --- */

static enum status measure_option(struct memory_fit *f, int i)
{
    struct memory_option *o = &f->options[i];
    struct memory_set alone = {.options = {i}, .count = 1};
    bool fits;
    if (!strcmp(o->knob, "rows") && layout_choice_keeps_rows(f->config)) return STATUS_OK;
    TRY(find_memory(f, &alone, &fits));
    o->saved_bytes = f->configured.memory_bytes - alone.cost.memory_bytes;
    o->applies = o->saved_bytes > 0;
    if (!o->applies) return STATUS_OK;
    TRY(find_time(f, &alone));
    o->added_s = alone.cost.estimate.step_s - f->configured.estimate.step_s;
    return STATUS_OK;
}

/* --- sets of options --- */

struct set_list {
    struct memory_set *sets; /* owned */
    size_t count;
};

static bool has_option(const struct memory_set *s, int option)
{
    for (int i = 0; i < s->count; i++)
        if (s->options[i] == option) return true;
    return false;
}

static bool has_knob(const struct memory_fit *f, const struct memory_set *s, const char *knob)
{
    for (int i = 0; i < s->count; i++)
        if (!strcmp(f->options[s->options[i]].knob, knob)) return true;
    return false;
}

/* Whether a smaller set is enough already. */
static bool includes_one(const struct set_list *l, const struct memory_set *s)
{
    for (size_t i = 0; i < l->count; i++) {
        bool all = true;
        for (int k = 0; k < l->sets[i].count; k++) all &= has_option(s, l->sets[i].options[k]);
        if (all) return true;
    }
    return false;
}

static void add_option(const struct memory_fit *f, struct memory_set *s, int option)
{
    enum numerics n = f->options[option].numerics;
    s->options[s->count++] = option;
    if (n > s->numerics) s->numerics = n;
}

/* Tries every set that adds `more` of the options from `first` on. */
static enum status try_sets(const struct memory_fit *f, const struct memory_set *s, int first,
                            int more, struct set_list *l)
{
    struct memory_set next = *s;
    bool fits;
    if (!more) {
        if (includes_one(l, s)) return STATUS_OK;
        TRY(find_memory(f, &next, &fits));
        if (!fits) return STATUS_OK;
        TRY(find_time(f, &next));
        l->sets = heap_grow(l->sets, l->count + 1, sizeof *l->sets);
        l->sets[l->count++] = next;
        return STATUS_OK;
    }
    for (int i = first; i < f->num_options; i++) {
        if (!f->options[i].applies || has_knob(f, s, f->options[i].knob)) continue;
        next = *s;
        add_option(f, &next, i);
        TRY(try_sets(f, &next, i + 1, more - 1, l));
    }
    return STATUS_OK;
}

static int compare_sets(const void *x, const void *y)
{
    const struct memory_set *a = x, *b = y;
    double s = a->cost.estimate.step_s, t = b->cost.estimate.step_s;
    if (s != t) return s < t ? -1 : 1;
    if (a->numerics != b->numerics) return a->numerics < b->numerics ? -1 : 1;
    return a->count - b->count;
}

/* Chooses for each knob the option that saves most.  Returns the number of knobs. */
static int make_largest_set(const struct memory_fit *f, struct memory_set *s)
{
    *s = (struct memory_set){0};
    for (int i = 0; i < f->num_options; i++) {
        int best = i;
        if (!f->options[i].applies || has_knob(f, s, f->options[i].knob)) continue;
        for (int k = i + 1; k < f->num_options; k++)
            if (f->options[k].applies && !strcmp(f->options[k].knob, f->options[i].knob) &&
                f->options[k].saved_bytes > f->options[best].saved_bytes)
                best = k;
        add_option(f, s, best);
    }
    return s->count;
}

static enum status find_sets(struct memory_fit *f)
{
    struct memory_set none = {0}, largest;
    struct set_list l = {0};
    enum status st = STATUS_OK;
    bool fits;
    int knobs = make_largest_set(f, &largest);
    TRY(find_memory(f, &largest, &fits));
    for (int count = 1; fits && count <= knobs; count++) TRY_OUT(try_sets(f, &none, 0, count, &l));
    if (l.count) qsort(l.sets, l.count, sizeof *l.sets, compare_sets);
    for (size_t i = 0; i < l.count && i < MAX_MEMORY_SETS; i++) f->sets[f->num_sets++] = l.sets[i];
out:
    free(l.sets);
    return st;
}

enum status memory_fit_run(struct memory_fit *f)
{
    struct memory_set none = {0};
    f->num_options = NUM_ROWS, f->num_sets = 0;
    memcpy(f->options, rows, sizeof rows);
    TRY(find_memory(f, &none, &f->fits));
    TRY(find_time(f, &none));
    f->configured = none.cost;
    for (int i = 0; i < f->num_options; i++) TRY(measure_option(f, i));
    if (!f->fits) TRY(find_sets(f));
    return STATUS_OK;
}

void memory_fit_settings(const struct memory_fit *f, const struct memory_set *s, struct text *out)
{
    for (int i = 0; i < s->count; i++) {
        const struct memory_option *o = &f->options[s->options[i]];
        text_addf(out, "%s%s", i ? " " : "", o->settings);
        if (!strcmp(o->knob, "rows") && f->config->training.global_batch_size < 1)
            text_addf(out, " training.global_batch_size=%lld", (long long)f->step_rows);
    }
}
