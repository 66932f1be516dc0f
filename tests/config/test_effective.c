// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/effective.h"

static void load(struct config *c, const char *const *settings, int count)
{
    CHECK_STATUS(OK, config_load(c, NULL, settings, count));
}

static const char *origin(const struct config *c, const char *key)
{
    static char buffer[128];
    return effective_origin(c, key, buffer, sizeof buffer);
}

TEST(effective_sizes_are_those_of_the_flavor)
{
    struct config c, copy;
    load(&c, (const char *const[]){"model.flavor=8B", "model.n_layers=4"}, 2);
    effective_fill(&copy, &c);
    CHECK(copy.model.dim == 4096 && copy.model.n_layers == 4 && copy.model.head_dim == 128);
    CHECK(copy.model.ffn_hidden == 14336 && copy.model.tie_embeddings == NO);
    CHECK(copy.model.rope_scaling != ROPE_SCALING_auto && c.model.dim == 0);
    CHECK(!strcmp(origin(&c, "model.dim"), "flavor \"8B\" of \"llama3\""));
    CHECK(!strcmp(origin(&c, "model.n_layers"), "command line"));
    CHECK(!strcmp(origin(&c, "model.head_dim"), "derived: dim / n_heads"));
    CHECK(!strcmp(origin(&c, "model.vocab_size"), "the tokenizer's"));
    CHECK(!strcmp(origin(&c, "training.steps"), "default"));
    config_release(&c);
}

TEST(layers_without_rope_come_from_the_flavor)
{
    struct config c;
    load(&c, (const char *const[]){"model.name=smollm3", "model.flavor=3B"}, 2);
    CHECK(!strcmp(origin(&c, "model.no_rope_layer_interval"), "flavor \"3B\" of \"smollm3\""));
    config_release(&c);
}

TEST(effective_sizes_of_every_family_give_the_same_model)
{
    static const char *const flavors[][3] = {
        {"model.name=llama3", "model.flavor=8B"},
        {"model.name=llama3.2", "model.flavor=1B"},
        {"model.name=llama2", "model.flavor=7B"},
        {"model.name=frontier", "model.flavor=3B"},
        {"model.rope_scaling=llama3", "model.rope_factor=9", "model.rope_high_freq_factor=5"},
        {"model.rope_scaling=linear", "model.rope_factor=9"},
        {"model.rope_scaling=dynamic", "model.rope_factor=9", "model.max_context=999"},
        {"model.rope_scaling=yarn", "model.rope_factor=9", "model.rope_beta_slow=2"},
        {"model.rope_scaling=yarn", "model.rope_factor=9", "model.rope_beta_fast=40"},
        {"model.rope_scaling=yarn", "model.rope_factor=9", "model.rope_attention_factor=1.5"}};
    for (size_t i = 0; i < sizeof flavors / sizeof *flavors; i++) {
        struct config c, copy;
        struct model_shape a, b;
        load(&c, flavors[i], flavors[i][2] ? 3 : 2);
        effective_fill(&copy, &c);
        CHECK_STATUS(OK, model_shape_resolve(&a, &c.model, 0));
        CHECK_STATUS(OK, model_shape_resolve(&b, &copy.model, 0));
        CHECK(a.D == b.D && a.L == b.L && a.H == b.H && a.G == b.G && a.K == b.K && a.F == b.F);
        CHECK(a.tied == b.tied && rope_scaling_equals(&a.scaling, &b.scaling) && a.V == b.V);
        CHECK(a.max_context == b.max_context);
        CHECK(!(a.rope_theta < b.rope_theta) && !(a.rope_theta > b.rope_theta));
        config_release(&c);
    }
}

TEST(effective_values_of_an_unknown_flavor_stay_as_they_are)
{
    struct config c, copy;
    load(&c, (const char *const[]){"model.flavor=9000B"}, 1);
    effective_fill(&copy, &c);
    CHECK(copy.model.dim == 0 && !strcmp(copy.model.flavor, "9000B"));
    config_release(&c);
}
