// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_items.h"
#include "checkpoint/rig.h"
#include "formats/pickle.h"

static const struct dcp_target newest = {.generation = DCP_NEW};

static const struct dcp_item *find(const struct dcp_items *items, const char *name)
{
    const struct dcp_item *found = NULL;
    for (size_t i = 0; i < items->count; i++)
        if (!strcmp(items->all[i].name, name)) {
            CHECK(!found); /* names are unique */
            found = &items->all[i];
        }
    return found;
}

static double real_of(const struct dcp_items *items, const char *name)
{
    const struct dcp_item *item = find(items, name);
    struct pickle p;
    size_t used;
    CHECK(item && item->kind == DCP_OBJECT && item->is_nested);
    CHECK_STATUS(
        OK, pickle_parse(&p, (unsigned char *)item->pickle.data, item->pickle.len, name, &used));
    double value = p.root->kind == PICKLE_IS_FLOAT ? p.root->real : (double)p.root->integer;
    CHECK(used == item->pickle.len);
    pickle_release(&p);
    return value;
}

TEST(dcp_items_of_a_model_are_its_tensors)
{
    struct saved s;
    struct dcp_items items;
    saved_open(&s, false);
    const struct torch_model m = {&s.shape, &s.layout, &s.shard, tensor_source_flat(s.weights),
                                  SAFETENSORS_BF16};
    dcp_items_make(&items, &m, &newest, NULL);
    CHECK(items.count == (size_t)s.layout.num_tensors);
    const struct dcp_item *q = find(&items, "layers.1.attention.qkv_linear.wq.weight");
    CHECK(q && q->kind == DCP_TENSOR && !q->is_nested && q->tensor.dtype == SAFETENSORS_BF16);
    CHECK(q->tensor.num_dims == 2 && q->source == &m.weights);
    dcp_items_release(&items);
    saved_close(&s);
}

TEST(dcp_items_of_a_run_are_what_torchtitan_loads)
{
    struct saved s;
    struct dcp_items items;
    saved_open(&s, true);
    const struct torch_model m = {&s.shape, &s.layout, &s.shard, tensor_source_flat(s.weights),
                                  SAFETENSORS_BF16};
    const struct dcp_run run = {
        .exp_avg = tensor_source_flat(s.exp_avg),
        .exp_avg_sq = tensor_source_flat(s.exp_avg_sq),
        .step = 300,
        .tokens_seen = INT64_C(1) << 40,
        .moment_steps = 250,
        .train = "{}",
        .adamw = {1e-3, 2e-3, 0.9, 0.95, 1e-8, 0.1, true, false},
    };
    dcp_items_make(&items, &m, &newest, &run);
    size_t weights = (size_t)s.layout.num_tensors;
    CHECK(items.count == weights * (1 + 3 + 12) + 1 + 7 + 3); /* with the tied head */
    const struct dcp_item *moment =
        find(&items, "optimizer.state.layers.0.attention.qkv_linear.wk.weight.exp_avg_sq");
    CHECK(moment && moment->is_nested && moment->tensor.dtype == SAFETENSORS_F32);
    CHECK(moment->source == &run.exp_avg_sq && moment->tensor.shape[0] == 8);
    const struct dcp_item *step = find(&items, "optimizer.state.norm.weight.step");
    const float want = 250;
    CHECK(step && step->kind == DCP_SCALAR && step->tensor.num_dims == 0);
    CHECK(!memcmp(step->number, &want, 4));
    CHECK(real_of(&items, "optimizer.param_groups.tok_embeddings.weight.lr") == 1e-3);
    CHECK(real_of(&items, "optimizer.param_groups.norm.weight.initial_lr") == 2e-3);
    CHECK(real_of(&items, "optimizer.param_groups.norm.weight.weight_decay") == 0.1);
    CHECK(real_of(&items, "optimizer.param_groups.norm.weight.fused") == 1);
    CHECK(real_of(&items, "lr_scheduler.last_epoch") == 300);
    CHECK(real_of(&items, "lr_scheduler._step_count") == 301);
    CHECK(real_of(&items, "train_state.ntokens_seen") == (double)run.tokens_seen);
    CHECK(find(&items, "llamero.train"));
    dcp_items_release(&items);
    saved_close(&s);
}

static struct text bytes_of(const struct dcp_items *items, const char *name)
{
    const struct dcp_item *item = find(items, name);
    struct pickle p;
    struct text out = {0};
    size_t used;
    CHECK(item && !strcmp(item->type, "bytes"));
    CHECK_STATUS(
        OK, pickle_parse(&p, (unsigned char *)item->pickle.data, item->pickle.len, name, &used));
    CHECK(p.root->class == PICKLE_ENCODE);
    const struct pickle_value *text = pickle_item(p.root->items[0], 0);
    text_add(&out, text->text, text->len);
    pickle_release(&p);
    return out;
}

TEST(an_empty_data_position_is_the_pickle_of_an_empty_dict)
{
    const struct dcp_target target = {.generation = DCP_V0_2, .dp_size = 3};
    const struct dcp_run run = {.train = "{}"};
    struct saved s;
    struct dcp_items items;
    struct pickle p;
    size_t used;
    saved_open(&s, false);
    const struct torch_model m = {&s.shape, &s.layout, &s.shard, {0}, SAFETENSORS_F32};
    dcp_items_make(&items, &m, &target, &run);
    CHECK(real_of(&items, "dataloader.world_size") == 3 && !find(&items, "dataloader.dp_rank_3"));
    struct text position = bytes_of(&items, "dataloader.dp_rank_2");
    CHECK_STATUS(OK, pickle_parse(&p, (unsigned char *)position.data, position.len, "it", &used));
    CHECK(p.root->kind == PICKLE_IS_DICT && !p.root->count);
    pickle_release(&p);
    text_release(&position);
    dcp_items_release(&items);
    saved_close(&s);
}
