// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/model_defaults.h"

TEST(model_init_rejects_invalid_sizes)
{
    struct model_shape s = rig_shape();
    struct model m;
    struct arena run = {0};
    CHECK_STATUS(SHAPE, model_init(&m, &s, 0, 1, &run));
    s.K = 3;
    CHECK_STATUS(CONFIG, model_init(&m, &s, 4, 1, &run));
}

TEST(flops_per_token_match_torchtitan)
{
    struct model_config c = model_defaults("llama3", "8B");
    struct model_shape s;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    double parameters = 8030261248.0 - 128256.0 * 4096;
    CHECK(model_flops_per_token(&s, 8192) == 6 * parameters + 12.0 * 32 * 4096 * 8192);
    c = model_defaults("llama3.2", "1B");
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(model_flops_per_token(&s, 2048) == 6 * 1235814400.0 + 12.0 * 16 * 2048 * 2048);
    double causal = model_causal_flops_per_token(&s, 2048);
    s.qk_norm = true; /* 16 blocks with two weights of 64 */
    CHECK(model_flops_per_token(&s, 2048) == 6 * 1235816448.0 + 12.0 * 16 * 2048 * 2048);
    CHECK(model_causal_flops_per_token(&s, 2048) == causal);
    s.post_norm = true; /* 16 blocks with a weight of 2048 and one of 512 */
    CHECK(model_flops_per_token(&s, 2048) == 6 * 1235855360.0 + 12.0 * 16 * 2048 * 2048);
    s.qk_norm = s.post_norm = false, s.window = 512;
    CHECK(model_flops_per_token(&s, 2048) == 6 * 1235814400.0 + 12.0 * 16 * 2048 * 512);
    CHECK(causal - model_causal_flops_per_token(&s, 2048) ==
          6.0 * 16 * 2048 * (2048 - 2 * 512 + 128));
    c = model_defaults("qwen2.5", "0.5B"); /* tied: the embedding is the head */
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(model_flops_per_token(&s, 2048) == 6 * 494032768.0 + 12.0 * 24 * 896 * 2048);
}

TEST(causal_flops_per_token_match_megatron)
{
    static const struct {
        const char *name, *flavor;
        int T;
        double giga;
    } rows[] = {{"llama2", "7B", 4096, 42.864},
                {"llama2", "13B", 4096, 82.143},
                {"llama2", "70B", 4096, 428.385},
                {"llama3", "8B", 8192, 51.470},
                {"llama3", "70B", 8192, 449.223}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_config c = model_defaults(rows[i].name, rows[i].flavor);
        struct model_shape s;
        if (!strcmp(rows[i].name, "llama2")) c.vocab_size = 32000;
        CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
        CHECK_NEAR(model_causal_flops_per_token(&s, rows[i].T) / 1e9, rows[i].giga, 0.0006);
    }
}
