// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert_check.h"

#include "checkpoint/convert.h"
#include "checkpoint/rig.h"

TEST(formats_without_names_for_qk_norm_are_refused)
{
    static const struct {
        enum conversion_target target;
        enum dcp_generation generation;
        double rope_factor;
        const char *message;
    } cases[] = {{CONVERT_META, 0, 0, "Meta's format has no weights"},
                 {CONVERT_NXDT, 0, 0, "NxD Training's format has no weights"},
                 {CONVERT_DCP, DCP_FRONTIER, 0, "--generation frontier"},
                 {CONVERT_DCP, DCP_V0_1, 0, "--generation v0.1"},
                 {CONVERT_DCP, DCP_V0_2, 8, "torchtitan's Qwen3 does not scale RoPE"},
                 {CONVERT_GGUF, 0, 8, "llama.cpp's Qwen3 does not scale RoPE"}};
    struct model_shape shape = small_shape();
    struct saved s;
    const char *to = test_path(test_folder(), "to");
    shape.qk_norm = true;
    saved_open_shape(&s, &shape);
    const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct converted done;
        struct conversion c = {.from = step,
                               .to = to,
                               .target = cases[i].target,
                               .sets_rope = cases[i].rope_factor > 0,
                               .rope_factor = cases[i].rope_factor,
                               .dcp = {.generation = cases[i].generation}};
        CHECK_STATUS(UNSUPPORTED, convert_checkpoint(&c, &done));
        CHECK_MESSAGE("step-4 has QK norm (model.qk_norm)");
        CHECK_MESSAGE(cases[i].message);
        CHECK(!file_exists(to));
    }
    saved_close(&s);
}

/* A checkpoint of the shape, and its conversion to a folder that does not exist yet. */
static struct conversion save_model(struct saved *s, const struct model_shape *shape,
                                    enum conversion_target target)
{
    saved_open_shape(s, shape);
    return (struct conversion){.from = test_path(saved_folder(s, STEPS(4)), "step-4"),
                               .to = test_path(test_folder(), "to"),
                               .target = target,
                               .dtype = SAFETENSORS_F32};
}

static void check_refused(const struct conversion *c, const char *message)
{
    struct converted done;
    CHECK_STATUS(UNSUPPORTED, convert_checkpoint(c, &done));
    CHECK_MESSAGE(message);
    CHECK(!file_exists(c->to));
}

TEST(formats_without_multipliers_or_blocks_without_rope_are_refused)
{
    static const struct {
        enum conversion_target target;
        int no_rope_interval;
        bool mlp_bias;
        const char *message;
    } cases[] = {{CONVERT_META, 0, false, "Granite's multipliers, which Llamas of Meta"},
                 {CONVERT_NXDT, 2, false, "blocks without RoPE, which Llamas of NxD Training"},
                 {CONVERT_DCP, 2, false, "blocks without RoPE, which Llamas of torchtitan"},
                 {CONVERT_GGUF, 2, false, "every 2 blocks one has no RoPE"},
                 {CONVERT_GGUF, 4, true, "llama.cpp's smollm3 has neither biases"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape shape = small_shape();
        struct saved s;
        shape.no_rope_interval = cases[i].no_rope_interval, shape.mlp_bias = cases[i].mlp_bias;
        if (cases[i].no_rope_interval) shape.L = 4;
        if (!cases[i].no_rope_interval) model_shape_set_multipliers(&shape, 2, 1, 0, 1);
        struct conversion c = save_model(&s, &shape, cases[i].target);
        check_refused(&c, cases[i].message);
        saved_close(&s);
    }
}

TEST(formats_that_do_not_scale_rope_like_the_model_are_refused)
{
    static const struct {
        enum conversion_target target;
        enum rope_method method;
        double attention_factor, beta_fast, beta_slow;
        const char *message;
    } cases[] = {
        {CONVERT_META, ROPE_linear, 0, 0, 0, "scaling linear, which Meta's Llama does not have"},
        {CONVERT_NXDT, ROPE_yarn, 0, 32, 1, "scaling yarn, which NxD Training does not have"},
        {CONVERT_DCP, ROPE_yarn, 0, 32, 1, "scaling yarn, which torchtitan does not have"},
        {CONVERT_GGUF, ROPE_dynamic, 0, 0, 0, "scaling dynamic, which llama.cpp does not have"},
        {CONVERT_GGUF, ROPE_yarn, 0, 16, 1, "beta_fast 16 and beta_slow 1; llama.cpp has 32 and 1"},
        {CONVERT_GGUF, ROPE_yarn, 0, 32, 2, "beta_fast 32 and beta_slow 2; llama.cpp has 32 and 1"},
        {CONVERT_GGUF, ROPE_yarn, 2, 32, 1, "attention_factor 2; llama.cpp computes it"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape shape = small_shape();
        struct saved s;
        struct converted done;
        shape.scaling = (struct rope_scaling){.factor = 4, .method = cases[i].method};
        if (cases[i].method != ROPE_linear) shape.scaling.original_context = 16;
        shape.scaling.beta_fast = cases[i].beta_fast, shape.scaling.beta_slow = cases[i].beta_slow;
        shape.scaling.attention_factor = cases[i].attention_factor;
        struct conversion c = save_model(&s, &shape, cases[i].target);
        check_refused(&c, cases[i].message);
        c.sets_rope = true, c.target = CONVERT_META; /* --rope-factor none */
        CHECK_STATUS(OK, convert_checkpoint(&c, &done));
        CHECK_STATUS(OK, file_remove_tree(c.to));
        saved_close(&s);
    }
}

TEST(formats_without_names_for_biases_are_refused)
{
    static const struct {
        enum conversion_target target;
        double rope_factor;
        bool qk_norm;
        const char *message;
    } cases[] = {{CONVERT_META, 0, false, "Meta's format has no weights"},
                 {CONVERT_NXDT, 0, false, "NxD Training's format has no weights"},
                 {CONVERT_DCP, 0, false, "torchtitan's format has no weights"},
                 {CONVERT_GGUF, 8, false, "llama.cpp's qwen2 does not scale RoPE"},
                 {CONVERT_GGUF, 0, true, "llama.cpp's qwen3 does not have both"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape shape = small_shape();
        struct saved s;
        const char *to = test_path(test_folder(), "to");
        struct converted done;
        shape.qk_norm = cases[i].qk_norm;
        shape.qkv_bias = true, shape.out_bias = shape.qk_norm;
        if (cases[i].rope_factor > 0)
            shape.scaling = (struct rope_scaling){.factor = 8,
                                                  .low_frequency_factor = 1,
                                                  .high_frequency_factor = 4,
                                                  .original_context = 32};
        saved_open_shape(&s, &shape);
        struct conversion c = {.from = test_path(saved_folder(&s, STEPS(4)), "step-4"),
                               .to = to,
                               .target = cases[i].target,
                               .dcp = {.generation = DCP_V0_2}};
        CHECK_STATUS(UNSUPPORTED, convert_checkpoint(&c, &done));
        CHECK_MESSAGE("(model.attention_bias)");
        CHECK_MESSAGE(cases[i].message);
        CHECK(!file_exists(to));
        saved_close(&s);
    }
}

TEST(formats_without_norms_behind_are_refused)
{
    static const struct {
        enum conversion_target target;
        const char *message;
    } cases[] = {{CONVERT_META, "(model.post_norm), which Llamas of Meta"},
                 {CONVERT_NXDT, "(model.post_norm), which Llamas of NxD Training"},
                 {CONVERT_DCP, "(model.post_norm), which Llamas of torchtitan"},
                 {CONVERT_GGUF, "4 heads of 6 are not as wide as the stream of 16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape shape = small_shape();
        struct saved s;
        shape.qk_norm = shape.post_norm = true;
        if (cases[i].target == CONVERT_GGUF) shape.K = 6;
        struct conversion c = save_model(&s, &shape, cases[i].target);
        check_refused(&c, cases[i].message);
        saved_close(&s);
    }
}

TEST(formats_that_rotate_whole_heads_are_refused)
{
    static const struct {
        enum conversion_target target;
        int head_dim;
        const char *message;
    } cases[] = {{CONVERT_META, 4, "step-4 rotates 2 of 4 coordinates of each head"},
                 {CONVERT_NXDT, 4, "(model.partial_rotary_factor), which Llamas of NxD Training"},
                 {CONVERT_DCP, 4, "which Llamas of torchtitan do not: use --to hf, gguf or native"},
                 {CONVERT_GGUF, 8,
                  "4 heads of 8 are not as wide as the stream of 16, as "
                  "llama.cpp's phi3 requires"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape shape = small_shape();
        struct saved s;
        shape.partial_rotary_factor = 0.5, shape.K = cases[i].head_dim;
        struct conversion c = save_model(&s, &shape, cases[i].target);
        check_refused(&c, cases[i].message);
        saved_close(&s);
    }
}

TEST(rope_is_not_scaled_as_llama_3s_where_a_part_of_each_head_rotates)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct converted done;
    shape.partial_rotary_factor = 0.5;
    struct conversion c = save_model(&s, &shape, CONVERT_HF);
    c.sets_rope = true, c.rope_factor = 8;
    CHECK_STATUS(CONFIG, convert_checkpoint(&c, &done));
    CHECK_MESSAGE("model.rope_scaling = \"llama3\": no family of Transformers has both");
    saved_close(&s);
}

TEST(formats_without_sliding_windows_are_refused)
{
    static const enum conversion_target targets[] = {CONVERT_META, CONVERT_NXDT, CONVERT_DCP,
                                                     CONVERT_GGUF};
    struct model_shape shape = small_shape();
    struct saved s;
    struct converted done;
    const char *to = test_path(test_folder(), "to");
    shape.window = 4;
    saved_open_shape(&s, &shape);
    const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct conversion c = {.from = step, .to = to, .target = targets[i]};
        CHECK_STATUS(UNSUPPORTED, convert_checkpoint(&c, &done));
        CHECK_MESSAGE("step-4 has a sliding window (model.sliding_window) of 4 tokens");
        CHECK(!file_exists(to));
    }
    saved_close(&s);
    shape.window = shape.max_context; /* hides nothing there */
    saved_open_shape(&s, &shape);
    step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    struct conversion c = {.from = step, .to = to, .target = CONVERT_META, .keep_dtype = true};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    saved_close(&s);
}
