// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/data_stages.h"

/* Stages begin after step 4 and after 544 tokens, with step 7. */
static void load(struct config *c, const char *setting)
{
    const char *settings[] = {"training.seq_len=16",
                              "training.local_batch_size=2",
                              "training.global_batch_size=4",
                              "training.steps=12",
                              "checkpoint.enable=true",
                              "data.tokenizer=bytes",
                              "data.source.0.path=a",
                              "data.source.1.path=b",
                              "data.source.1.weight=0",
                              "data.source.1.name=math",
                              "data.stage.0.at_step=4",
                              "data.stage.0.weights=[0.5, 0.5]",
                              "data.stage.0.seq_len=24",
                              "data.stage.1.at_tokens=544", /* 4 * 4 * 16 + 3 * 4 * 24 */
                              "data.stage.1.weights=[0, 1]",
                              "data.stage.1.global_batch_size=6",
                              "data.stage.1.attn_mask_type=block_causal",
                              setting};
    int count = sizeof settings / sizeof *settings;
    CHECK_STATUS(OK, config_load(c, NULL, settings, setting ? count : count - 1));
}

static const struct mesh one_rank = {.degree = {1, 1, 1, 1, 1}};

TEST(a_stage_keeps_what_it_does_not_change)
{
    struct config c;
    struct data_stage s;
    struct text t = {0};
    load(&c, NULL);
    CHECK_STATUS(OK, config_check(&c, 1));
    CHECK(data_stages_count(&c) == 3);
    data_stages_open(&s, &c, &one_rank, 0);
    CHECK(s.begin == 0 && s.end == 4 && s.config.training.seq_len == 16);
    CHECK(s.config.data.sources[1].weight == 0 && s.config.data.num_stages == 0);
    data_stages_close(&s);
    data_stages_open(&s, &c, &one_rank, 1);
    CHECK(s.begin == 4 && s.end == 7 && s.config.training.seq_len == 24);
    CHECK(s.config.data.sources[0].weight == 0.5 && s.config.training.global_batch_size == 4);
    CHECK(s.config.model.attn_mask_type == ATTN_MASK_causal);
    data_stages_describe(&s, &one_rank, &t);
    CHECK(!strcmp(t.data, "rows of 24 tokens, 4 per step; 0.5 a, 0.5 math"));
    data_stages_close(&s);
    data_stages_open(&s, &c, &one_rank, 2);
    CHECK(s.begin == 7 && s.end == 12 && s.config.training.seq_len == 24);
    CHECK(s.config.data.sources[0].weight == 0 && s.config.training.global_batch_size == 6);
    CHECK(s.config.model.attn_mask_type == ATTN_MASK_block_causal);
    data_stages_close(&s);
    static const size_t of_step[] = {0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2};
    for (int64_t step = 0; step <= 12; step++)
        CHECK(data_stages_find(&c, &one_rank, step) == of_step[step]);
    text_release(&t);
    config_release(&c);
}

/* A stage begins with the first step that reaches its tokens, whatever the steps before had. */
TEST(stages_begin_at_tokens_across_a_batch_ramp)
{
    struct config c;
    load(&c, "training.batch_ramp=[2, 2, 12]");
    for (int64_t at = 1; at < 1000; at += 7) {
        struct data_stage s;
        c.data.stages[1].at_tokens = at;
        data_stages_open(&s, &c, &one_rank, 2);
        /* 12 rows in steps of 2, then steps of 4; rows of 16 tokens in the first 4 steps */
        int64_t step = 0, rows = 0, tokens = 0;
        while (tokens < at || step < 4) {
            int64_t own = rows > 12 ? 4 : 2 + 2 * (rows / 12);
            tokens += own * (step < 4 ? 16 : 24), rows += own, step++;
        }
        CHECK(s.begin == step);
        data_stages_close(&s);
    }
    config_release(&c);
}

TEST(stages_that_make_no_sense_are_refused)
{
    static const struct {
        const char *setting, *why;
    } cases[] = {
        {"data.stage.0.at_step=0", "data.stage.0: set either at_step or at_tokens"},
        {"data.stage.0.at_tokens=100", "data.stage.0: set either at_step or at_tokens"},
        {"data.stage.1.at_tokens=10", "data.stage.1 begins after step 4: it must begin after"},
        {"data.stage.0.weights=[1]", "data.stage.0.weights: expected 2 weights"},
        {"data.stage.1.weights=[0, 0]", "data.stage.1.weights: at least one"},
        {"checkpoint.enable=false", "[[data.stage]] requires checkpoint.enable = true"},
        {"checkpoint.load_only=true", "[[data.stage]] requires checkpoint.enable = true"},
        {"data.order=megatron", "data.stage.0: data.order = \"megatron\" has one order"},
        {"data.stage.0.seq_len=0", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        load(&c, cases[i].setting);
        CHECK(config_check(&c, 1) == (cases[i].why ? STATUS_CONFIG : STATUS_OK));
        if (cases[i].why) CHECK_MESSAGE(cases[i].why);
        config_release(&c);
    }
    struct config c = {0};
    load(&c, "data.packing=best_fit");
    c.model.attn_mask_type = ATTN_MASK_block_causal;
    CHECK_STATUS(CONFIG, config_check(&c, 1));
    CHECK_MESSAGE("data.stage.0: data.packing = \"best_fit\" packs documents for the whole run");
    config_release(&c);
    const char *const twice[] = {"data.source.0.path=a", "data.source.0.name=x",
                                 "data.source.1.path=b", "data.source.1.name=x"};
    CHECK_STATUS(CONFIG, config_load(&c, NULL, twice, 4));
    CHECK_MESSAGE("data.source.1.name = \"x\": data.source.0 has the same name");
    config_release(&c);
}
