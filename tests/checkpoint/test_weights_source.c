// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sharding.h"

#include "base/log.h"
#include "checkpoint/weights_source.h"

/* Call after changing the shape. */
static void update_layout(struct saved *s)
{
    shard_release(&s->shard);
    layout_release(&s->layout);
    layout_init(&s->layout, &s->shape, 1);
    shard_init(&s->shard, &s->layout, 0, 1);
}

TEST(loading_a_model_of_another_shape_fails)
{
    struct saved s, other;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    saved_open(&other, false);
    other.shape.F = 20;
    update_layout(&other);
    CHECK_STATUS(CONFIG, try_load(&other, step));
    CHECK_MESSAGE("tensor model.layers.0.mlp.gate_proj.weight has shape [24, 16], expected [20, "
                  "16]: set model.ffn_hidden to fit");
    other.shape.F = 24, other.shape.L = 1;
    update_layout(&other);
    CHECK_STATUS(CONFIG, try_load(&other, step));
    CHECK_MESSAGE("the model has no tensor model.layers.1.");
    other.shape.L = 3;
    update_layout(&other);
    CHECK_STATUS(CONFIG, try_load(&other, step));
    CHECK_MESSAGE("step-1: tensor model.layers.2.input_layernorm.weight is missing");
    saved_close(&other);
    saved_close(&s);
}

TEST(different_heads_are_rejected_and_different_rope_is_warned_about)
{
    struct saved s, other;
    struct text warnings = {0};
    saved_open(&s, false);
    saved_open(&other, false);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    const char *log = test_path(test_folder(), "log.txt");
    other.shape.H = 2, other.shape.K = 8, other.shape.G = 1; /* tensors of the same shapes */
    CHECK_STATUS(CONFIG, try_load(&other, step));
    CHECK_MESSAGE("saved with 4 heads of size 4, 2 key/value heads; this model has 2 of size 8");
    other.shape = s.shape;
    other.shape.rope_theta = 5e5;
    other.shape.norm_eps = 1e-6;
    other.shape.window = 8;
    CHECK_STATUS(OK, log_open(log));
    enum status same = try_load(&s, step), other_rope = try_load(&other, step);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK(!same && !other_rope);
    CHECK_STATUS(OK, file_read(log, 1 << 20, &warnings));
    CHECK(strstr(warnings.data, "base 10000 ") && strstr(warnings.data, "has 500000 "));
    CHECK(strstr(warnings.data, "saved with a sliding window of 0 tokens"));
    CHECK(strstr(warnings.data, "saved with norm_eps 1e-05; this model has 1e-06"));
    text_release(&warnings);
    saved_close(&other);
    saved_close(&s);
}

TEST(shape_is_read_from_the_folder)
{
    struct saved s;
    struct model_shape got;
    saved_open(&s, true);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    CHECK_STATUS(OK, checkpoint_read_shape(step, &got));
    CHECK(got.V == s.shape.V && got.D == s.shape.D && got.G == s.shape.G && got.tied);
    CHECK_STATUS(MISSING, checkpoint_read_shape(test_folder(), &got));
    saved_close(&s);
}

TEST(a_checkpoint_loads_only_where_the_model_has_its_multipliers)
{
    struct model_shape shape = small_shape();
    struct saved plain, s;
    saved_open_shape(&plain, &shape);
    model_shape_set_multipliers(&shape, 12, 1, 0, 1);
    saved_open_shape(&s, &shape);
    const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    const char *other = test_path(saved_folder(&plain, STEPS(4)), "step-4");
    CHECK_STATUS(OK, try_load(&s, step));
    CHECK_STATUS(CONFIG, try_load(&plain, step));
    CHECK_MESSAGE("set model.embedding_multiplier = 12");
    CHECK_STATUS(CONFIG, try_load(&s, other));
    CHECK_MESSAGE("saved without model.embedding_multiplier");
    saved_close(&plain), saved_close(&s);
}

TEST(a_checkpoint_loads_only_where_the_model_rotates_the_same_part_of_each_head)
{
    struct model_shape shape = small_shape();
    struct saved plain, s;
    saved_open_shape(&plain, &shape);
    shape.partial_rotary_factor = 0.5;
    saved_open_shape(&s, &shape);
    const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    const char *other = test_path(saved_folder(&plain, STEPS(4)), "step-4");
    CHECK_STATUS(OK, try_load(&s, step));
    CHECK_STATUS(CONFIG, try_load(&plain, step));
    CHECK_MESSAGE("set model.partial_rotary_factor = 0.5");
    CHECK_STATUS(CONFIG, try_load(&s, other));
    CHECK_MESSAGE("saved without model.partial_rotary_factor");
    saved_close(&plain), saved_close(&s);
}

TEST(a_checkpoint_with_qk_norm_loads_only_where_the_model_has_it)
{
    struct model_shape shape = small_shape();
    struct saved plain, s;
    saved_open_shape(&plain, &shape);
    shape.qk_norm = true;
    saved_open_shape(&s, &shape);
    const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    const char *other = test_path(saved_folder(&plain, STEPS(4)), "step-4");
    CHECK_STATUS(OK, try_load(&s, step));
    CHECK_STATUS(CONFIG, try_load(&plain, step));
    CHECK_MESSAGE("saved with QK norm: set model.qk_norm = true");
    CHECK_STATUS(CONFIG, try_load(&s, other));
    CHECK_MESSAGE("self_attn.q_norm.weight");
    saved_close(&plain), saved_close(&s);
}

TEST(a_checkpoint_with_biases_loads_only_where_the_model_has_them)
{
    struct model_shape shape = small_shape();
    struct saved plain, qkv, all, mlp;
    saved_open_shape(&plain, &shape);
    shape.mlp_bias = true;
    saved_open_shape(&mlp, &shape);
    shape.mlp_bias = false;
    shape.qkv_bias = true;
    saved_open_shape(&qkv, &shape);
    shape.out_bias = shape.mlp_bias = true;
    saved_open_shape(&all, &shape);
    const char *step = test_path(saved_folder(&qkv, STEPS(4)), "step-4");
    CHECK_STATUS(OK, try_load(&qkv, step));
    CHECK_STATUS(CONFIG, try_load(&plain, step));
    CHECK_MESSAGE("saved with biases of attention: set model.attention_bias = \"qkv\"");
    CHECK_STATUS(CONFIG, try_load(&all, step));
    CHECK_MESSAGE("self_attn.o_proj.bias");
    step = test_path(saved_folder(&all, STEPS(4)), "step-4");
    CHECK_STATUS(OK, try_load(&all, step));
    CHECK_STATUS(CONFIG, try_load(&qkv, step));
    CHECK_MESSAGE("set model.attention_bias = \"all\"");
    step = test_path(saved_folder(&mlp, STEPS(4)), "step-4");
    CHECK_STATUS(OK, try_load(&mlp, step));
    CHECK_STATUS(CONFIG, try_load(&plain, step));
    CHECK_MESSAGE("saved with biases of the feed-forward layer: set model.mlp_bias = true");
    saved_close(&mlp);
    saved_close(&plain), saved_close(&qkv), saved_close(&all);
}

TEST(a_checkpoint_loads_only_where_norms_are_in_the_same_place)
{
    struct model_shape shape = small_shape();
    struct saved front, behind;
    shape.qk_norm = true;
    saved_open_shape(&front, &shape);
    shape.post_norm = true;
    saved_open_shape(&behind, &shape);
    const char *step = test_path(saved_folder(&behind, STEPS(4)), "step-4");
    const char *other = test_path(saved_folder(&front, STEPS(4)), "step-4");
    CHECK_STATUS(OK, try_load(&behind, step));
    CHECK_STATUS(CONFIG, try_load(&front, step));
    CHECK_MESSAGE("norms behind attention and feed-forward layer: set model.post_norm = true");
    CHECK_STATUS(CONFIG, try_load(&behind, other));
    CHECK_MESSAGE(
        "norms in front of attention and feed-forward layer: set model.post_norm = false");
    saved_close(&front), saved_close(&behind);
}

TEST(a_checkpoint_of_another_vocabulary_is_rejected_unless_its_tensors_are_excluded)
{
    const char *items[] = {"model.embed_tokens.weight", "lm_head.weight"};
    const struct option_list exclude = {.items = items, .count = 2};
    struct saved s, other;
    struct weights_source o;
    saved_open(&s, false), saved_open(&other, false);
    const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    other.shape.V = 40;
    update_layout(&other);
    const struct checkpoint_state state = {
        .shape = &other.shape, .layout = &other.layout, .world = comm_self()};
    CHECK_STATUS(CONFIG, weights_source_open(&o, step, &state, NULL, false));
    CHECK_MESSAGE("saved with a vocabulary of 37 tokens");
    weights_source_close(&o);
    const struct load_rules rules = {.exclude = &exclude};
    CHECK_STATUS(OK, weights_source_open(&o, step, &state, &rules, false));
    CHECK(tensor_origins_count(&o.origins, ORIGIN_EXCLUDED) == 2 && !o.drops_head);
    weights_source_close(&o);
    const struct option_list all = {.items = (const char *[]){"*"}, .count = 1};
    const struct load_rules none = {.exclude = &all};
    CHECK_STATUS(DATA, weights_source_open(&o, step, &state, &none, false));
    CHECK_MESSAGE("none of its tensors would be loaded");
    weights_source_close(&o);
    saved_close(&s), saved_close(&other);
}
