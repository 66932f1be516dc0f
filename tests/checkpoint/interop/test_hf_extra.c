// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_extra.h"

#include "test.h"

/* Reads a config.json with these members, of 8 layers with heads of 16. */
static enum status read_extra(const char *model_type, const char *members, struct model_shape *s)
{
    const struct hf_family *family;
    struct text t = {0};
    struct json *root;
    CHECK_STATUS(OK, hf_family_find(model_type, &family));
    text_addf(&t, "{%s}", members);
    *s = (struct model_shape){.L = 8, .K = 16};
    CHECK_STATUS(OK, json_parse(t.data, t.len, "config.json", &root));
    enum status st = hf_extra_read(root, family, s);
    json_free(root);
    text_release(&t);
    return st;
}

TEST(granite_without_multipliers_differs_from_a_llama_only_in_attention)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_extra("granite", "", &s));
    CHECK(s.embedding_multiplier == 0 && s.residual_multiplier == 0 && s.logits_scaling == 0);
    CHECK(s.attention_multiplier == 1 && model_shape_attention_scale(&s) == 1);
    CHECK_STATUS(OK, read_extra("granite", "\"attention_multiplier\": 0.25", &s));
    CHECK(!model_shape_multiplies(&s) && model_shape_attention_scale(&s) == 0.25f);
    CHECK_STATUS(OK, read_extra("llama", "\"logits_scaling\": 8", &s));
    CHECK(!model_shape_multiplies(&s));
    CHECK_STATUS(UNSUPPORTED, read_extra("granite", "\"residual_multiplier\": 0", &s));
    CHECK_MESSAGE("residual_multiplier 0");
}

TEST(smollm3_has_no_rope_in_every_fourth_layer_unless_config_json_says_otherwise)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_extra("smollm3", "", &s));
    CHECK(s.no_rope_interval == 4);
    CHECK_STATUS(OK, read_extra("smollm3",
                                "\"no_rope_layers\": null, "
                                "\"no_rope_layer_interval\": 3",
                                &s));
    CHECK(s.no_rope_interval == 3);
    CHECK_STATUS(OK, read_extra("smollm3", "\"no_rope_layers\": [1, 0, 1, 0, 1, 0, 1, 0, 1]", &s));
    CHECK(s.no_rope_interval == 2);
    CHECK_STATUS(OK, read_extra("smollm3", "\"no_rope_layers\": [1, 1, 1, 1, 1, 1, 1, 1]", &s));
    CHECK(s.no_rope_interval == 0);
    CHECK_STATUS(OK, read_extra("smollm3", "\"no_rope_layer_interval\": 9", &s));
    CHECK(s.no_rope_interval == 0);
}

TEST(no_rope_layers_that_are_irregular_or_malformed_are_rejected)
{
    struct model_shape s;
    CHECK_STATUS(UNSUPPORTED,
                 read_extra("smollm3", "\"no_rope_layers\": [1, 0, 0, 1, 1, 1, 1, 1]", &s));
    CHECK_MESSAGE("layer 2 does not have RoPE: must be every Nth layer");
    CHECK_STATUS(UNSUPPORTED,
                 read_extra("smollm3", "\"no_rope_layers\": [1, 0, 1, 1, 1, 1, 1, 1]", &s));
    CHECK_STATUS(DATA, read_extra("smollm3", "\"no_rope_layers\": [1, 0]", &s));
    CHECK_MESSAGE("has 2 items");
    CHECK_STATUS(DATA, read_extra("smollm3", "\"no_rope_layers\": [1, \"x\"]", &s));
}

TEST(multipliers_and_blocks_without_rope_are_read_as_written)
{
    struct model_shape shapes[4] = {{.L = 8, .K = 16}, {.L = 8, .K = 16}, {.L = 8, .K = 16}};
    model_shape_set_multipliers(&shapes[0], 12, 0.22, 0.015625, 8);
    model_shape_set_multipliers(&shapes[1], 12, 1, 0.25, 1);
    shapes[2].no_rope_interval = 3;
    shapes[3] = (struct model_shape){.L = 8, .K = 6, .logits_scaling = 2};
    for (int i = 0; i < 4; i++) {
        const struct model_shape *a = &shapes[i];
        const struct hf_family *family = hf_family_of(a);
        struct text t = {0};
        struct json_writer w = {.text = &t};
        struct json *root;
        json_begin_object(&w, NULL, JSON_INLINE);
        hf_extra_write(&w, family, a);
        json_end_object(&w);
        json_finish(&w);
        CHECK_STATUS(OK, json_parse(t.data, t.len, "config.json", &root));
        struct model_shape b = {.L = a->L, .K = a->K};
        CHECK_STATUS(OK, hf_extra_read(root, family, &b));
        CHECK(a->no_rope_interval == b.no_rope_interval);
        CHECK(a->embedding_multiplier == b.embedding_multiplier);
        CHECK(a->residual_multiplier == b.residual_multiplier);
        CHECK(a->attention_multiplier == b.attention_multiplier);
        CHECK(a->logits_scaling == b.logits_scaling);
        json_free(root);
        text_release(&t);
    }
}
