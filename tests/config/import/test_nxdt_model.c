// SPDX-License-Identifier: Apache-2.0
#include "config/import/nxdt_model.h"

#include "config/import/imported.h"

static const char hf[] = "tests/config/data/nxdt-hf-llama3-70b.yaml";
static const char megatron[] = "tests/config/data/nxdt-megatron-llama-7b.yaml";

/* Imports the file without the lines that contain one of the words, and with more of `model`. */
static enum status convert(struct import *im, const char *file, const char *const *without,
                           const char *more)
{
    struct text bytes = {0}, kept = {0};
    CHECK_STATUS(OK, file_read(file, 1 << 20, &bytes));
    for (const char *line = bytes.data, *end; *line; line = end) {
        bool is_kept = true;
        end = line + strcspn(line, "\n");
        end += *end == '\n';
        for (int k = 0; without[k]; k++) {
            const char *at = strstr(line, without[k]);
            is_kept &= !at || at >= end;
        }
        if (is_kept) text_add(&kept, line, (size_t)(end - line));
        if (!strncmp(line, "model:\n", 7)) text_addf(&kept, "%s", more);
    }
    enum status st = import_nxdt(im, kept.data, kept.len, "conf.yaml", NULL, 0);
    text_release(&bytes), text_release(&kept);
    return st;
}

TEST(the_keys_of_nxd_trainings_megatron_model_are_translated)
{
    static const struct {
        const char *more, *expected[6];
    } cases[] = {
        {"  has_bias: False\n",
         {"model.rope_theta=1e+04", "model.attention_bias=\"auto\"", "model.tie_embeddings=false",
          "model.sliding_window=0", "model.vocab_multiple=8"}},
        {"  has_bias: True\n  sliding_window_size: 1024\n",
         {"model.attention_bias=\"all\"", "model.mlp_bias=true", "model.sliding_window=1024"}},
        {"  has_bias: False\n  position_freq_base: 20000\n  position_abf_factor: 5\n"
         "  positition_interpolation_factor: 4.0\n",
         {"model.rope_theta=1e+05", "model.rope_scaling=\"linear\"", "model.rope_factor=4.0"}},
        {"  rotary_percentage: 0.5\n  rope_theta: 500000\n  sliding_window_size: 4096\n",
         {"model.rope_theta=5e+05", "model.rope_scaling=\"auto\"", "model.sliding_window=0",
          "model.partial_rotary_factor=0.5"}},
    };
    static const char *const without[] = {"has_bias", "rotary_percentage", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        CHECK_STATUS(OK, convert(&im, megatron, without, cases[i].more));
        CHECK_STATUS(OK, import_check_refusals(&im));
        imported_check(&im, cases[i].expected);
        import_release(&im);
    }
}

TEST(absent_keys_have_the_defaults_of_nxd_trainings_megatron_model)
{
    static const char *const without[] = {"has_bias",        "share_embeddings",
                                          "use_scaled_init", "num_kv_heads",
                                          "activation:",     "normaliz",
                                          "position_embedd", "hidden_dropout",
                                          "sliding_window",  NULL};
    static const char *const refused[] = {"model.activation", "model.normalization",
                                          "model.position_embedding_type", "model.hidden_dropout"};
    static const char *const expected[] = {
        "model.attention_bias=\"all\"", "model.mlp_bias=true", "model.tie_embeddings=true",
        "model.init=\"megatron\"",      "model.n_kv_heads=32", NULL};
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, megatron, without, ""));
    CHECK_STATUS(CONFIG, import_check_refusals(&im));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) CHECK_MESSAGE(refused[i]);
    imported_check(&im, expected);
    import_release(&im);
}

TEST(absent_keys_train_as_nxd_training_does_without_them)
{
    static const struct {
        const char *file, *without[5], *expected[5];
    } cases[] = {
        {hf,
         {"betas", "weight_decay", "sched:", "min_lr"},
         {"optimizer.beta2=0.999", "optimizer.weight_decay=0.01", "lr_scheduler.warmup_steps=0",
          "lr_scheduler.min_lr_factor=1.0"}},
        {megatron, {"do_layer_norm_weight_decay"}, {"optimizer.decay_norms=false"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        CHECK_STATUS(OK, convert(&im, cases[i].file, cases[i].without, ""));
        imported_check(&im, cases[i].expected);
        import_release(&im);
    }
}

static enum status convert_with(struct import *im, const char *setting)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(hf, 1 << 20, &bytes));
    enum status st = import_nxdt(im, bytes.data, bytes.len, "conf.yaml", &setting, 1);
    text_release(&bytes);
    return st;
}

TEST(a_null_that_turns_a_setting_off_keeps_it_off)
{
    static const char *const expected[] = {"training.max_norm=0.0", NULL};
    struct import im = {0};
    CHECK_STATUS(OK, convert_with(&im, "trainer.gradient_clip_val=null"));
    imported_check(&im, expected);
    import_release(&im);
}

TEST(a_schedule_that_nxd_training_replaces_is_reported)
{
    struct import im = {0};
    CHECK_STATUS(OK, convert_with(&im, "model.optim.sched.max_steps=7"));
    CHECK(imported_has_note(&im, IMPORT_ORIGINAL_BUG, "model.optim.sched.max_steps",
                            "trainer.max_steps"));
    import_release(&im);
    im = (struct import){0};
    CHECK_STATUS(OK, convert_with(&im, "trainer.max_steps=0"));
    CHECK(!imported_has_note(&im, IMPORT_ORIGINAL_BUG, "model.optim.sched.max_steps", ""));
    import_release(&im);
}

TEST(an_unknown_key_in_a_section_of_the_yaml_gets_a_suggestion_from_it)
{
    static const char *const cases[][2] = {
        {"trainer.max_step=9", "command line: trainer.max_step: not a key of NxD Training; did you "
                               "mean trainer.max_steps?"},
        {"+model.optim.lrs=9", "model.optim.lrs: not a key of NxD Training; did you mean "
                               "model.optim.lr?"},
        {"training.step=9", "unknown key training.step; did you mean training.steps?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        CHECK_STATUS(CONFIG, convert_with(&im, cases[i][0]));
        CHECK_MESSAGE(cases[i][1]);
        import_release(&im);
    }
}

TEST(keys_that_only_the_megatron_model_reads_change_no_other)
{
    static const char more[] =
        "  has_bias: True\n  sliding_window_size: 64\n  position_abf_factor: 5\n";
    static const char *const expected[] = {"model.attention_bias=\"auto\"", "model.mlp_bias=false",
                                           "model.sliding_window=0", "model.rope_theta=5e+05",
                                           NULL};
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, hf, (const char *[]){NULL}, more));
    CHECK_STATUS(OK, import_check_refusals(&im));
    CHECK(imported_has_note(&im, IMPORT_IGNORED, "model.has_bias", "model_source = megatron"));
    imported_check(&im, expected);
    import_release(&im);
}

TEST(bugs_of_nxd_trainings_megatron_model_are_reported)
{
    static const char *const all[] = {NULL};
    struct import im = {0};
    CHECK_STATUS(
        OK, convert(&im, megatron, all, "  rope_theta: 500000\n  sliding_window_size: 1024\n"));
    CHECK(imported_has_note(&im, IMPORT_ORIGINAL_BUG, "model.rope_theta", "position_freq_base"));
    CHECK(imported_has_note(&im, IMPORT_ORIGINAL_BUG, "model.sliding_window_size", "mask"));
    import_release(&im);
    CHECK_STATUS(CONFIG, convert(&im, megatron, all, "  positition_interpolation_factor: 0.5\n"));
    CHECK_MESSAGE("expected at least 1");
    import_release(&im);
}
