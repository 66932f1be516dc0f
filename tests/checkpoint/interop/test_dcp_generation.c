// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_generation.h"

#include "checkpoint/interop/dcp_items.h"
#include "checkpoint/rig.h"
#include "formats/torch.h"

/* What each generation saves of a run, by tests/oracle/dcp_generations.py. */
#define KEYS "tests/checkpoint/data/dcp-generations"

static void form_of(const struct dcp_item *item, struct text *out)
{
    text_clear(out);
    if (item->kind == DCP_OBJECT) {
        text_adds(out, item->type);
        return;
    }
    text_addf(out, "%s [", torch_dtype_name(item->tensor.dtype));
    for (int d = 0; d < item->tensor.num_dims; d++)
        text_addf(out, "%s%lld", d ? ", " : "", (long long)item->tensor.shape[d]);
    text_adds(out, "]");
}

static struct dcp_item *find(const struct dcp_items *items, const char *name)
{
    struct dcp_item *found = NULL;
    for (size_t i = 0; i < items->count; i++)
        if (!strcmp(items->all[i].name, name)) {
            CHECK(!found); /* names are unique */
            found = &items->all[i];
        }
    return found;
}

/* Keys of other versions of torch, of ranks that the list does not have, and our own. */
static bool may_be_added(const char *name)
{
    return !strncmp(name, "lr_scheduler.", 13) || !strncmp(name, "dataloader.dp_rank_", 19) ||
           !strcmp(name, "llamero.train");
}

static void make_items(const struct saved *s, enum dcp_generation g, bool with_run,
                       struct dcp_items *items)
{
    static const struct dcp_run run = {.step = 4, .tokens_seen = 64, .train = "{}"};
    const struct torch_model m = {&s->shape, &s->layout, &s->shard, {0}, SAFETENSORS_F32};
    const struct dcp_target target = {.generation = g, .seq_len = 8, .dp_size = 2};
    dcp_items_make(items, &m, &target, with_run ? &run : NULL);
}

TEST(a_run_has_the_keys_dtypes_and_shapes_that_each_generation_saves)
{
    struct saved s;
    saved_open(&s, false);
    for (int g = 0; g < DCP_GENERATIONS; g++) {
        struct dcp_items items;
        struct text list = {0}, form = {0};
        char file[200], *line, *rest;
        size_t listed = 0, added = 0;
        snprintf(file, sizeof file, KEYS "/%s.txt", dcp_generations[g].name);
        CHECK_STATUS(OK, file_read(file, 1 << 20, &list));
        make_items(&s, (enum dcp_generation)g, true, &items);
        for (line = strtok_r(list.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            char *want = strchr(line, ' ');
            if (line[0] == '#') continue;
            CHECK(want);
            *want++ = '\0';
            struct dcp_item *item = find(&items, line);
            CHECK(item);
            form_of(item, &form);
            CHECK(!strcmp(form.data, want));
            item->name[0] = '\0', listed++;
        }
        for (size_t i = 0; i < items.count; i++) {
            if (!items.all[i].name[0]) continue;
            CHECK(may_be_added(items.all[i].name));
            added++;
        }
        CHECK(listed > 300 && listed + added == items.count);
        dcp_items_release(&items);
        text_release(&list), text_release(&form);
    }
    saved_close(&s);
}

TEST(only_a_models_weights_are_nested_as_each_generation_loads_step_0)
{
    static const char *const q[] = {"model.layers.1.attention.wq.weight",
                                    "layers.1.attention.wq.weight", "layers.1.attention.wq.weight",
                                    "layers.1.attention.qkv_linear.wq.weight"};
    struct saved s;
    saved_open(&s, false);
    for (int g = 0; g < DCP_GENERATIONS; g++) {
        struct dcp_items items;
        make_items(&s, (enum dcp_generation)g, false, &items);
        CHECK(items.count == (size_t)s.layout.num_tensors);
        const struct dcp_item *item = find(&items, q[g]);
        CHECK(item && item->is_nested == (g == DCP_FRONTIER));
        dcp_items_release(&items);
    }
    saved_close(&s);
}

TEST(a_tied_head_is_saved_and_has_moments_where_it_cannot_be_tied)
{
    static const char *const names[][2] = {{"model.output.weight", "output.weight"},
                                           {"model.output.weight", "output.weight"},
                                           {"output.weight", "output.weight"},
                                           {"lm_head.weight", "lm_head.weight"}};
    struct saved s;
    saved_open(&s, true);
    for (int g = 0; g < DCP_GENERATIONS; g++) {
        struct dcp_items items;
        char moment[80];
        make_items(&s, (enum dcp_generation)g, true, &items);
        const struct dcp_item *head = find(&items, names[g][0]);
        CHECK(head && s.layout.tensors[head->index].id == PARAM_embed);
        snprintf(moment, sizeof moment, "optimizer.state.%s.exp_avg", names[g][1]);
        CHECK((find(&items, moment) != NULL) == (g != DCP_NEW));
        snprintf(moment, sizeof moment, "optimizer.param_groups.%s.lr", names[g][1]);
        CHECK((find(&items, moment) != NULL) == (g != DCP_NEW));
        dcp_items_release(&items);
    }
    saved_close(&s);
}

TEST(generations_are_named_by_the_flag_and_the_runs_model)
{
    struct text words = {0};
    for (int g = 0; g < DCP_GENERATIONS; g++)
        text_addf(&words, "%s%s", g ? "|" : "", dcp_generations[g].name);
    CHECK(!strcmp(words.data, DCP_GENERATION_WORDS));
    text_release(&words);
    CHECK(dcp_generation_of_model("frontier") == DCP_FRONTIER);
    CHECK(dcp_generation_of_model("llama3") == DCP_V0_2);
}
