// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_rope.h"

#include "test.h"

#include <math.h>

/* Reads a config.json with these members, of a model with a context of 64 tokens. */
static enum status read_rope(const char *members, struct model_shape *s)
{
    struct text t = {0};
    struct json *root;
    text_addf(&t, "{%s}", members);
    *s = (struct model_shape){.max_context = 64, .rope_theta = 10000};
    CHECK_STATUS(OK, json_parse(t.data, t.len, "config.json", &root));
    enum status st = hf_rope_read(root, s);
    json_free(root);
    text_release(&t);
    return st;
}

TEST(yarn_has_the_defaults_of_transformers)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_rope("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0}", &s));
    CHECK(s.scaling.method == ROPE_yarn && s.scaling.factor == 4 && s.rope_theta == 10000);
    CHECK(s.scaling.beta_fast == 32 && s.scaling.beta_slow == 1);
    CHECK(s.scaling.attention_factor == 0 && s.scaling.original_context == 64);
}

TEST(yarn_with_two_mscales_has_the_ratio_of_their_factors)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_rope("\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 40,"
                               "\"mscale\": 0.7, \"mscale_all_dim\": 1.3}",
                               &s));
    double want = (0.07 * log(40) + 1) / (0.13 * log(40) + 1);
    CHECK_NEAR(s.scaling.attention_factor, want, 1e-15);
    CHECK_STATUS(OK, read_rope("\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 40,"
                               "\"mscale\": 0.7}",
                               &s));
    CHECK(s.scaling.attention_factor == 0);
    CHECK_STATUS(OK, read_rope("\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 40,"
                               "\"attention_factor\": 1.5, \"mscale\": 1, \"mscale_all_dim\": 1}",
                               &s));
    CHECK(s.scaling.attention_factor == 1.5);
}

TEST(an_original_context_outside_of_the_object_has_precedence)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_rope("\"original_max_position_embeddings\": 16, \"rope_parameters\": "
                               "{\"rope_type\": \"yarn\", \"factor\": 4,"
                               "\"original_max_position_embeddings\": 32}",
                               &s));
    CHECK(s.scaling.original_context == 16);
}

TEST(dynamic_scaling_extends_max_position_embeddings)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_rope("\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.5}", &s));
    CHECK(s.scaling.method == ROPE_dynamic && s.scaling.factor == 2.5);
    CHECK(s.scaling.original_context == 64 && s.max_context == 160);
    CHECK(hf_rope_context(&s) == 64);
}

TEST(scaling_that_is_incomplete_or_unknown_is_rejected)
{
    struct model_shape s;
    CHECK_STATUS(DATA, read_rope("\"rope_scaling\": {\"type\": \"linear\"}", &s));
    CHECK_MESSAGE("\"factor\": expected a number");
    CHECK_STATUS(UNSUPPORTED,
                 read_rope("\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2}", &s));
    CHECK_MESSAGE("rope type \"ntk\" is not supported");
    CHECK_STATUS(DATA, read_rope("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 0}", &s));
    CHECK_STATUS(UNSUPPORTED,
                 read_rope("\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\", "
                           "\"factor\": 4}}",
                           &s));
    CHECK_STATUS(UNSUPPORTED,
                 read_rope("\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": "
                           "4, \"truncate\": false}",
                           &s));
    CHECK_MESSAGE("\"truncate\" = false is not supported");
    CHECK_STATUS(DATA, read_rope("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, "
                                 "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3}",
                                 &s));
    CHECK_MESSAGE("describe different models");
}
