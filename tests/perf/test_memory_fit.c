// SPDX-License-Identifier: Apache-2.0
#include "perf/memory_fit.h"

#include "model/layout.h"
#include "perf/layouts.h"
#include "test.h"

static struct memory_fit fit_of(struct layouts *l, const char *const *settings, int num_settings)
{
    layouts_open(l, 4, 0, settings, num_settings);
    struct memory_fit f = {.config = &l->config, .model = &l->model, .ranks = 4};
    CHECK_STATUS(OK, mesh_resolve(&f.mesh, &l->config.parallelism, 0, 4));
    f.step_rows = config_step_rows(&l->config, &f.mesh);
    CHECK_STATUS(OK, memory_fit_run(&f));
    return f;
}

static const struct memory_option *option_of(const struct memory_fit *f, const char *settings)
{
    for (int i = 0; i < f->num_options; i++)
        if (!strcmp(f->options[i].settings, settings)) return &f->options[i];
    CHECK(!"no such option");
    return NULL;
}

TEST(memory_options_report_what_each_saves_and_costs)
{
    const char *const settings[] = {"training.local_batch_size=4",
                                    "activation_checkpoint.mode=none"};
    struct layouts l;
    struct memory_fit f = fit_of(&l, settings, 2);
    const struct memory_option *full = option_of(&f, "activation_checkpoint.mode=full");
    const struct memory_option *some = option_of(&f, "activation_checkpoint.mode=selective");
    const struct memory_option *moments = option_of(&f, "optimizer.state_dtype=bfloat16");
    CHECK(f.fits && !f.num_sets);
    CHECK(full->applies && some->applies && full->saved_bytes > some->saved_bytes);
    CHECK(full->added_s > some->added_s && full->numerics == NUMERICS_same_bits);
    /* Two moments of two bytes less, for a quarter of the parameters. */
    struct layout whole;
    layout_init(&whole, &l.shape, 1);
    CHECK_NEAR(moments->saved_bytes / ((double)whole.parameters), 1, 0.01);
    layout_release(&whole);
    CHECK(moments->numerics == NUMERICS_other_rounding);
    CHECK(!option_of(&f, "parallelism.fsdp_shard_gradients=true")->applies); /* it is the default */
    layouts_close(&l);
}

/* Removing an option from a set makes it too large. */
static void check_smallest(const struct layouts *l, const struct memory_fit *f)
{
    for (int i = 0; i < f->num_sets; i++) {
        const struct memory_set *s = &f->sets[i];
        CHECK(s->count > 0 && layout_cost_fits(&s->cost, f->model));
        for (int skipped = 0; skipped < s->count; skipped++) {
            struct config c = l->config;
            struct layout_cost cost;
            struct mesh mesh;
            c.training.global_batch_size = f->step_rows;
            for (int k = 0; k < s->count; k++)
                if (k != skipped) f->options[s->options[k]].set(&c);
            CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, f->ranks));
            CHECK_STATUS(OK, layout_cost_memory(&cost, f->model, &c, &mesh));
            CHECK(!layout_cost_fits(&cost, f->model));
        }
    }
}

TEST(memory_fit_finds_the_smallest_sets_of_options_with_which_a_run_fits)
{
    const char *settings[] = {"training.local_batch_size=4", "activation_checkpoint.mode=none",
                              "parallelism.data_parallel_replicate_degree=2", NULL};
    char memory[64];
    struct layouts l;
    snprintf(memory, sizeof memory, "device.memory_bytes=1e12");
    settings[3] = memory;
    struct memory_fit f = fit_of(&l, settings, 4);
    double all = f.configured.memory_bytes;
    layouts_close(&l);
    for (double part = 0.95; part > 0.75; part -= 0.05) {
        snprintf(memory, sizeof memory, "device.memory_bytes=%.0f", part * all);
        f = fit_of(&l, settings, 4);
        CHECK(!f.fits && f.num_sets > 0);
        check_smallest(&l, &f);
        for (int i = 1; i < f.num_sets; i++)
            CHECK(f.sets[i - 1].cost.estimate.step_s <= f.sets[i].cost.estimate.step_s);
        layouts_close(&l);
    }
    snprintf(memory, sizeof memory, "device.memory_bytes=1e9");
    f = fit_of(&l, settings, 4);
    CHECK(!f.fits && !f.num_sets);
    layouts_close(&l);
}

TEST(memory_fit_settings_keep_the_rows_of_a_step)
{
    const char *const settings[] = {"training.local_batch_size=4"};
    struct layouts l;
    struct text t = {0};
    struct memory_fit f = fit_of(&l, settings, 1);
    struct memory_set rows = {.count = 1};
    while (strcmp(f.options[rows.options[0]].knob, "rows") != 0) rows.options[0]++;
    memory_fit_settings(&f, &rows, &t);
    CHECK(!strcmp(t.data, "training.local_batch_size=1 training.global_batch_size=16"));
    text_release(&t);
    layouts_close(&l);
}

static void add_value(void *context, const char *key, const char *value)
{
    text_addf(context, "%s = %s\n", key, value);
}

/* What a row tells users to set is what its function sets. */
TEST(memory_options_set_what_their_settings_say)
{
    struct layouts l;
    struct memory_fit f = fit_of(&l, NULL, 0);
    CHECK(f.num_options > 10);
    for (int i = 0; i < f.num_options; i++) {
        struct text want = {0}, got = {0};
        char *settings = heap_strdup(f.options[i].settings), *next = settings;
        const char *words[4];
        int count = 0;
        struct config c = l.config;
        struct layouts loaded;
        while (next && count < 4) words[count++] = strsep(&next, " ");
        CHECK(!next);
        layouts_open(&loaded, 4, 0, words, count);
        f.options[i].set(&c);
        config_for_each(&loaded.config, add_value, &want);
        config_for_each(&c, add_value, &got);
        if (strcmp(want.data, got.data) != 0) print_error("%s\n", f.options[i].settings);
        CHECK(!strcmp(want.data, got.data));
        layouts_close(&loaded);
        free(settings);
        text_release(&want), text_release(&got);
    }
    layouts_close(&l);
}
