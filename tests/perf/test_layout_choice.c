// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_choice.h"

#include "perf/layouts.h"
#include "test.h"

struct seen {
    const struct layouts *l;
    int count, valid, interleaved, full, zero1;
    int max_tp, max_cp, max_pp;
};

static int larger(int a, int b) { return a > b ? a : b; }

static void see(void *context, const struct layout_choice *x)
{
    struct seen *s = context;
    const struct layout_choices *all = &s->l->search.all;
    struct config c;
    struct mesh mesh;
    layout_choice_apply(x, all, &c, &mesh);
    int product = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) product *= x->degree[a];
    CHECK(product == all->ranks);
    CHECK(config_step_rows(&c, &mesh) == all->step_rows);
    s->valid += !config_fit(&c, all->shape, &mesh);
    s->count++, s->interleaved += x->chunks > 1;
    s->full += x->recomputation == RECOMPUTATION_full, s->zero1 += x->sharding == SHARDING_zero1;
    s->max_tp = larger(s->max_tp, x->degree[AXIS_tp]);
    s->max_cp = larger(s->max_cp, x->degree[AXIS_cp]);
    s->max_pp = larger(s->max_pp, x->degree[AXIS_pp]);
}

static struct seen see_all(struct layouts *l)
{
    struct seen s = {.l = l};
    layout_choice_each(&l->search.all, see, &s);
    return s;
}

TEST(layout_choices_keep_the_rows_of_a_step_and_suit_the_model)
{
    struct layouts l;
    layouts_open(&l, 16, 32, NULL, 0);
    struct seen s = see_all(&l);
    CHECK(s.valid > s.count * 9 / 10 && s.full * 3 == s.count);
    CHECK(s.interleaved && s.zero1);
    CHECK(s.max_tp == 4 && s.max_cp == 16 && s.max_pp == 8); /* 4 heads, 8 blocks */
    layouts_close(&l);
}

TEST(layout_choices_keep_local_batch_size_where_losses_depend_on_it)
{
    const char *const settings[] = {"training.loss_norm=rank_mean", "training.local_batch_size=2"};
    struct layouts l;
    layouts_open(&l, 4, 16, settings, 2);
    struct seen all = see_all(&l);
    CHECK(all.count > 0);
    l.config.training.loss_norm = LOSS_NORM_token_mean;
    CHECK(see_all(&l).count > all.count);
    l.config.training.loss_norm = LOSS_NORM_rank_mean;
    l.config.training.local_batch_size = 100;
    l.search.all.step_rows = 400;
    CHECK(see_all(&l).count > 0);
    layouts_close(&l);
}

/* The settings, given on the command line, make the same configuration. */
static void load(void *context, const struct layout_choice *x)
{
    const struct layouts *l = context;
    struct config chosen, loaded;
    struct mesh mesh, again;
    struct text t = {0};
    const char *words[32];
    int count = 0;
    if (x->rows != 2 || x->degree[AXIS_tp] != 2) return;
    layout_choice_apply(x, &l->search.all, &chosen, &mesh);
    layout_choice_settings(x, &l->search.all, &t);
    for (char *word = strtok(t.data, " "); word; word = strtok(NULL, " ")) words[count++] = word;
    CHECK_STATUS(OK, config_load(&loaded, NULL, words, count));
    CHECK_STATUS(OK, mesh_resolve(&again, &loaded.parallelism, 0, l->search.all.ranks));
    CHECK(!memcmp(mesh.degree, again.degree, sizeof mesh.degree));
    CHECK(loaded.training.local_batch_size == chosen.training.local_batch_size &&
          loaded.training.global_batch_size == chosen.training.global_batch_size);
    CHECK(loaded.activation_checkpoint.mode == chosen.activation_checkpoint.mode);
    CHECK(loaded.parallelism.fsdp_shard_gradients == chosen.parallelism.fsdp_shard_gradients);
    CHECK(loaded.parallelism.fsdp_reshard_after_forward ==
          chosen.parallelism.fsdp_reshard_after_forward);
    if (x->degree[AXIS_pp] > 1)
        CHECK(loaded.parallelism.pipeline_parallel_schedule ==
                  chosen.parallelism.pipeline_parallel_schedule &&
              loaded.parallelism.pipeline_parallel_layers_per_stage ==
                  chosen.parallelism.pipeline_parallel_layers_per_stage);
    config_release(&loaded);
    text_release(&t);
}

TEST(layout_choice_settings_reproduce_the_layout)
{
    struct layouts l;
    layouts_open(&l, 8, 16, NULL, 0);
    layout_choice_each(&l.search.all, load, &l);
    layouts_close(&l);
}
