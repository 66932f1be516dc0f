// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"

/* A small run.  Tests append flags; the last value of a flag counts. */
static const char base[] =
    "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --swiglu --disable-bias-linear "
    "--normalization RMSNorm --position-embedding-type rope --seq-length 128 "
    "--max-position-embeddings 128 --attention-dropout 0 --hidden-dropout 0 --mock-data "
    "--tokenizer-type NullTokenizer --vocab-size 500 --lr 1e-3";

static enum status convert_without(struct import *im, const char *flag, const char *more)
{
    struct text all = {0};
    const char *words[128];
    size_t count = 0;
    char *next;
    text_addf(&all, "%s %s", base, more);
    for (char *w = strtok_r(all.data, " ", &next); w; w = strtok_r(NULL, " ", &next))
        if (strcmp(w, flag) != 0) words[count++] = w;
    enum status st = import_flags(im, words, count);
    text_release(&all);
    return st;
}

static enum status convert(struct import *im, const char *more)
{
    return convert_without(im, "", more);
}

TEST(flags_translate_and_absent_flags_get_megatrons_defaults)
{
    static const struct {
        const char *flags, *expected[16];
    } cases[] = {
        {"--micro-batch-size 2 --train-iters 10",
         {"model.ffn_hidden=640", "model.n_kv_heads=8", "model.tie_embeddings=true",
          "training.global_batch_size=-1", "optimizer.beta2=0.999", "optimizer.weight_decay=0.01",
          "training.mixed_precision_param=\"float32\"", "metrics.log_freq=100",
          "lr_scheduler.decay_type=\"linear\"", "validation.steps=100", "debug.seed=1234",
          "model.rope_theta=1e+04"}},
        {"--micro-batch-size 2 --train-iters 100 --lr-decay-style constant --lr-warmup-iters 5",
         {"lr_scheduler.decay_ratio=0.0", "lr_scheduler.warmup_steps=5"}},
        {"--micro-batch-size 2 --train-iters 100 --group-query-attention", {"model.n_kv_heads=1"}},
        {"--micro-batch-size 2 --train-iters 100 --qk-layernorm",
         {"model.qk_norm=true", "optimizer.decay_norms=false"}},
        {"--micro-batch-size 2 --train-iters 100 --lr-decay-style WSD --lr-wsd-decay-iters 20 "
         "--lr-wsd-decay-style minus_sqrt",
         {"lr_scheduler.decay_ratio=0.2", "lr_scheduler.decay_type=\"sqrt\""}},
        {"--micro-batch-size 2 --train-iters 100 --lr-decay-style inverse-square-root",
         {"lr_scheduler.decay_type=\"inverse_sqrt\""}},
        {"--micro-batch-size 2 --train-iters 200 --lr-warmup-fraction 0.1 --min-lr 1e-4",
         {"lr_scheduler.warmup_steps=20", "lr_scheduler.min_lr_factor=0.1"}},
        {"--micro-batch-size 2 --global-batch-size 8 --train-samples 803 --lr-warmup-samples 21 "
         "--lr-decay-samples 700",
         {"training.steps=100", "data.samples=803", "lr_scheduler.warmup_samples=21",
          "lr_scheduler.total_samples=700"}},
        {"--micro-batch-size 1 --train-iters 9 --pipeline-model-parallel-size 2 "
         "--num-layers-per-virtual-pipeline-stage 1 --global-batch-size 8",
         {"parallelism.pipeline_parallel_schedule=\"Interleaved1F1B\"",
          "parallelism.pipeline_parallel_layers_per_stage=1"}},
        {"--micro-batch-size 1 --train-iters 9 --use-megatron-fsdp "
         "--data-parallel-sharding-strategy optim_grads",
         {"parallelism.fsdp_reshard_after_forward=\"never\"",
          "parallelism.data_parallel_shard_degree=-1"}},
        {"--micro-batch-size 1 --train-iters 9 --recompute-activations --reset-attention-mask "
         "--eod-mask-loss --async-save --save /s --save-interval 3 --most-recent-k 2 --load /s",
         {"activation_checkpoint.mode=\"selective\"", "model.attn_mask_type=\"block_causal\"",
          "data.eod_mask_loss=true", "training.loss_norm=\"rank_mean\"",
          "checkpoint.async_mode=\"async\"", "checkpoint.keep_latest_k=2",
          "checkpoint.initial_load_path=\"\""}},
        {"--micro-batch-size 1 --train-iters 9 --eod-mask-loss --calculate-per-token-loss "
         "--wandb-project llamas --wandb-exp-name a",
         {"data.eod_mask_loss=true", "training.loss_norm=\"token_mean\"",
          "metrics.enable_wandb=true", "metrics.wandb_project=\"llamas\""}},
        {"--micro-batch-size=4 --train-iters=9 --rotary-base=7000 --use-rope-scaling "
         "--rotary-percent 1.0 "
         "--group-query-attention --num-query-groups 2 training.steps=11",
         {"training.local_batch_size=4", "model.rope_theta=7e+03", "model.rope_scaling=\"llama3\"",
          "model.n_kv_heads=2", "training.steps=11"}},
        {"--micro-batch-size 1 --train-iters 9 --rotary-percent 0.5",
         {"model.partial_rotary_factor=0.5", "model.rope_scaling=\"none\"",
          "model.attention_bias=\"auto\"", "model.mlp_bias=false", "model.sliding_window=0"}},
        {"--micro-batch-size 1 --train-iters 9 --use-rope-scaling --rope-scaling-factor 32 "
         "--rotary-seq-len-interpolation-factor 1 --softmax-scale 0.125",
         {"model.rope_scaling=\"llama3\"", "model.rope_factor=32.0",
          "model.attention_multiplier=0.125"}},
        {"--micro-batch-size 1 --train-iters 9 --add-qkv-bias",
         {"model.attention_bias=\"qkv\"", "model.mlp_bias=false"}},
        {"--micro-batch-size 1 --train-iters 9 --window-size 63,0", {"model.sliding_window=64"}},
        {"--micro-batch-size 1 --train-iters 9 --no-rope-freq 2",
         {"model.no_rope_layer_interval=2"}},
        {"--micro-batch-size 1 --train-iters 9 --rotary-seq-len-interpolation-factor 4 "
         "--rope-scaling-factor 32 --window-size=(-1,0) --window-attn-skip-freq 2",
         {"model.rope_scaling=\"linear\"", "model.rope_factor=4.0", "model.sliding_window=0"}},
        {"--micro-batch-size 1 --train-iters 9 --decoupled-lr 1e-2 --min-lr 1e-4 "
         "--log-params-norm --dataloader-type cyclic --no-data-sharding",
         {"optimizer.decoupled_lr=0.01", "lr_scheduler.decoupled_min_lr_factor=0.01",
          "lr_scheduler.min_lr_factor=0.1", "metrics.log_parameter_norm=true",
          "data.sampler=\"cyclic_unsharded\"", "data.sampler_ranks=0", "data.sampler_rows=1",
          "metrics.console=\"megatron\""}},
        {"--micro-batch-size 1 --train-iters 9 --decoupled-lr 1e-2 --decoupled-min-lr 5e-3 "
         "--full-validation --pretrained-checkpoint base --dataloader-inter-document-masking",
         {"lr_scheduler.decoupled_min_lr_factor=0.5", "validation.steps=-1",
          "checkpoint.initial_load_path=\"base\"", "checkpoint.initial_load_model_only=true",
          "model.attn_mask_type=\"block_causal\""}},
        {"--micro-batch-size 2 --global-batch-size 8 --train-samples 60 --lr-warmup-samples 12 "
         "--rampup-batch-size 2 2 7 --decoupled-lr 1e-2",
         {"training.batch_ramp=[2, 2, 7]", "training.global_batch_size=8", "training.steps=9",
          "data.samples=60", "lr_scheduler.total_samples=60", "lr_scheduler.warmup_samples=12",
          "lr_scheduler.warmup_steps=3", "optimizer.decoupled_lr=0.01"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        enum status st = convert(&im, cases[i].flags);
        if (st) print_error("%zu: %s\n", i, status_message());
        CHECK(!st);
        imported_check(&im, cases[i].expected);
        import_release(&im);
    }
}

TEST(a_batch_ramp_without_warmup_is_a_valid_configuration)
{
    static const char *const expected[] = {"training.batch_ramp=[2, 2, 7]",
                                           "lr_scheduler.warmup_steps=0",
                                           "lr_scheduler.warmup_samples=0", NULL};
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, "--micro-batch-size 2 --global-batch-size 8 --train-samples 60 "
                                  "--rampup-batch-size 2 2 7"));
    im.num_ranks = 1; /* imported_check calls config_check */
    imported_check(&im, expected);
    import_release(&im);
}

TEST(fp8_flags_set_float8_keys)
{
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, "--micro-batch-size 1 --train-iters 9 --bf16 --fp8-format hybrid "
                                  "--fp8-recipe tensorwise"));
    const char *const expected[] = {"training.mixed_precision_param=\"bfloat16\"",
                                    "float8.enable_float8_linear=true",
                                    "float8.recipe_name=\"tensorwise\"", NULL};
    imported_check(&im, expected);
    import_release(&im);
    /* Transformer Engine's defaults if only the format is set */
    const char *const delayed[] = {"float8.recipe_name=\"delayed\"", "float8.amax_history_len=1",
                                   "float8.amax_compute_algo=\"most_recent\"", NULL};
    CHECK_STATUS(OK, convert(&im, "--micro-batch-size 1 --train-iters 9 --bf16 --linear-fp8"));
    imported_check(&im, delayed);
    import_release(&im);
    const char *const ends[] = {"float8.filter_fqns=[\"layers.0.\", \"layers.2.\", \"layers.3.\"]",
                                NULL};
    CHECK_STATUS(OK, convert(&im, "--micro-batch-size 1 --train-iters 9 --bf16 --fp8-format hybrid "
                                  "--first-last-layers-bf16 --num-layers-at-end-in-bf16 2"));
    imported_check(&im, ends);
    import_release(&im);
}

TEST(flags_that_change_the_result_are_refused)
{
    static const char *const cases[][3] = {
        {"--attention-dropout 0.1", "--attention-dropout", "dropout is not supported"},
        {"--num-experts 8", "--num-experts", "not a mixture-of-experts model"},
        {"--multi-latent-attention", "--multi-latent-attention", "not supported"},
        {"--squared-relu", "--squared-relu", "SwiGLU"},
        {"--qk-layernorm --apply-wd-to-qk-layernorm", "--apply-wd-to-qk-layernorm", "decay_norms"},
        {"--mtp-num-layers 1", "--mtp-num-layers", "multi-token prediction"},
        {"--normalization LayerNorm", "--normalization", "its normalization is RMSNorm"},
        {"--position-embedding-type yarn", "--position-embedding-type", "it uses RoPE"},
        {"--fp8-format hybrid --fp8-recipe mxfp8", "--fp8-recipe", "tensorwise"},
        {"--tokenizer-type GPT2BPETokenizer", "--tokenizer-type", "tokenizer.json"},
        {"--dataloader-type external", "--dataloader-type", "external data loaders"},
        {"--window-size 7,0 --window-attn-skip-freq 4", "--window-attn-skip-freq", "all layers"},
        {"--use-rope-scaling --rotary-seq-len-interpolation-factor 2",
         "--rotary-seq-len-interpolation-factor", "already scaled"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        struct text more = {0};
        text_addf(&more, "--micro-batch-size 1 --train-iters 9 %s", cases[i][0]);
        CHECK_STATUS(OK, convert(&im, more.data));
        CHECK(imported_has_note(&im, IMPORT_UNSUPPORTED, cases[i][1], cases[i][2]));
        CHECK_STATUS(CONFIG, import_check_refusals(&im));
        CHECK_MESSAGE(cases[i][1]);
        import_release(&im);
        text_addf(&more, " config.accept_loss=%s", cases[i][1]);
        CHECK_STATUS(OK, convert(&im, more.data));
        CHECK_STATUS(OK, import_check_refusals(&im));
        import_release(&im), text_release(&more);
    }
    struct import im = {0}; /* the value that Llamero implements */
    CHECK_STATUS(OK, convert(&im, "--micro-batch-size 1 --train-iters 9 --mtp-num-layers 0"));
    CHECK_STATUS(OK, import_check_refusals(&im));
    import_release(&im);
}

TEST(a_gpt_is_refused_with_each_difference_from_a_llama)
{
    const char *words[] = {"--num-layers",
                           "2",
                           "--hidden-size",
                           "64",
                           "--num-attention-heads",
                           "4",
                           "--micro-batch-size",
                           "1",
                           "--train-iters",
                           "3",
                           "--lr",
                           "1e-3",
                           "--seq-length",
                           "32",
                           "--data-path",
                           "d",
                           "--vocab-file",
                           "v.json",
                           "--merge-file",
                           "m.txt",
                           "--tokenizer-type",
                           "GPT2BPETokenizer"};
    static const char *const names[] = {
        "--swiglu",         "--normalization",     "--position-embedding-type",
        "--hidden-dropout", "--attention-dropout", "--vocab-file",
        "--tokenizer-type"};
    static const char *const biases[] = {"model.attention_bias=\"all\"", "model.mlp_bias=true",
                                         NULL};
    struct import im = {0};
    CHECK_STATUS(OK, import_flags(&im, words, sizeof words / sizeof *words));
    CHECK_STATUS(CONFIG, import_check_refusals(&im));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) CHECK_MESSAGE(names[i]);
    imported_check(&im, biases);
    import_release(&im);
}

TEST(every_accepted_flag_gets_a_note)
{
    static const struct {
        const char *key;
        int arity;
        const char *value;
    } flags[] = {
#define FLAG(key, arity, how, ours, text)                                                          \
    {key, arity, IMPORT_ROW_##how == IMPORT_ROW_ERROR && ours[0] ? ours : "1"},
#define IGNORED_FLAGS(arity, text, names)
#include "config/import/megatron.def"
#undef FLAG
#undef IGNORED_FLAGS
    };
    size_t taken = 0, all = sizeof flags / sizeof *flags;
    for (size_t i = 0; i < all; i++) {
        struct import im = {0};
        struct text more = {0};
        text_addf(&more, "--micro-batch-size 1 --train-iters 9 %s", flags[i].key);
        if (flags[i].arity)
            text_addf(&more, " %.*s", (int)strcspn(flags[i].value, "|"), flags[i].value);
        if (!convert(&im, more.data)) {
            imported_check_notes(&im);
            taken++;
        }
        text_release(&more);
        import_release(&im);
    }
    CHECK(taken > all - 30); /* some need others, or exclude them */
}

TEST(idle_flags_change_nothing_and_are_listed_once)
{
    static const struct {
        int arity;
        const char *names;
    } groups[] = {
#define FLAG(key, arity, how, ours, text)
#define IGNORED_FLAGS(arity, text, names) {arity, names},
#include "config/import/megatron.def"
#undef FLAG
#undef IGNORED_FLAGS
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        struct text names = {0};
        char *next;
        text_adds(&names, groups[i].names);
        for (char *n = strtok_r(names.data, " ", &next); n; n = strtok_r(NULL, " ", &next)) {
            struct import im = {0};
            struct text more = {0};
            char padded[128];
            size_t found = 0;
            snprintf(padded, sizeof padded, " %s ", n);
            for (size_t k = 0; k < sizeof groups / sizeof *groups; k++)
                found += strstr(groups[k].names, padded) != NULL;
            if (found != 1) fail_msg("%s is listed %zu times", n, found);
            text_addf(&more, "--micro-batch-size 1 --train-iters 9 %s%s", n,
                      groups[i].arity ? " 1" : "");
            CHECK_STATUS(OK, convert(&im, more.data));
            CHECK(imported_has_note(&im, IMPORT_IGNORED, n, ""));
            CHECK_STATUS(OK, import_check_refusals(&im));
            import_release(&im), text_release(&more);
        }
        text_release(&names);
    }
}

TEST(a_split_of_any_length_is_translated)
{
    struct import im = {0};
    struct text flags = {0}, want = {0};
    text_adds(&flags, "--micro-batch-size 2 --train-iters 10 --data-path /d/a --split '");
    text_adds(&want, "data.split=\"");
    for (int i = 0; i < 150; i++) text_adds(&flags, "0"), text_adds(&want, "0");
    text_adds(&flags, "9,1,0'"), text_adds(&want, "9,1,0\"");
    CHECK_STATUS(OK, convert_without(&im, "--mock-data", flags.data));
    imported_check(&im, (const char *const[]){want.data, NULL});
    import_release(&im);
    text_release(&flags), text_release(&want);
}

TEST(the_last_value_of_a_repeated_flag_counts)
{
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, "--micro-batch-size 3 --micro-batch-size 2 --train-iters 9 "
                                  "--kv-channels 16 --kv-channels 64"));
    CHECK(im.config.training.local_batch_size == 2 && im.config.model.head_dim == 64);
    CHECK(
        imported_has_note(&im, IMPORT_IGNORED, "--micro-batch-size", "overridden by a later one"));
    CHECK(imported_has_note(&im, IMPORT_IGNORED, "--kv-channels", "overridden by a later one"));
    imported_check_notes(&im);
    import_release(&im);
}

TEST(wrong_flags_are_rejected_with_a_clear_message)
{
    static const char *const cases[][2] = {
        {"--train-iters 9", "--micro-batch-size is required"},
        {"--micro-batch-size 1", "set either --train-iters or --train-samples"},
        {"--micro-batch-size 1 --train-iters 9 --train-samples 3", "either --train-iters"},
        {"--micro-batch-size 1 --train-samples 9", "requires --global-batch-size"},
        {"--micro-batch-size 1 --train-iters 9 --lr-decay-samples 3", "all in samples"},
        {"--micro-batch-size 1 --train-iters 9 --lr-warmup-iters 10", "longer than the schedule"},
        {"--micro-batch-size 1 --train-iters 9 --lr-warmup-iters 1 --lr-warmup-fraction 0.1",
         "set either --lr-warmup-fraction or --lr-warmup-iters"},
        {"--micro-batch-size 1 --train-iters 9 --lr-warmup-fraction 2", "from 0 to 1"},
        {"--micro-batch-size 1 --train-iters 9 --lr-decay-style square",
         "constant, linear, cosine"},
        {"--micro-batch-size 1 --train-iters 9 --lr-decay-style WSD",
         "WSD requires --lr-wsd-decay-iters"},
        {"--micro-batch-size 1 --train-iters 9 --lr-decay-style WSD --lr-wsd-decay-style root",
         "or minus_sqrt"},
        {"--micro-batch-size 1 --train-iters 9 --min-lr 1", "from 0 to the peak rate"},
        {"--micro-batch-size 1 --train-iters 9 --rotary-seq-len-interpolation-factor 0.5",
         "expected at least 1"},
        {"--micro-batch-size 1 --train-iters 9 --no-rope-freq 3", "a divisor of --num-layers"},
        {"--micro-batch-size 1 --train-iters 9 --no-rope-freq [0,1]*2", "lists of layers are not"},
        {"--micro-batch-size 1 --train-iters 9 --window-size 63", "expected LEFT,0 such as"},
        {"--micro-batch-size 1 --train-iters 9 --window-size 63,1", "expected LEFT,0 such as"},
        {"--micro-batch-size 1 --train-iters 9 --window-size 63,0,0", "expected LEFT,0 such as"},
        {"--micro-batch-size 1 --train-iters 9 --lr fast", "optimizer.lr=fast"},
        {"--micro-batch-size 1 --train-iters 9 --fp16", "bfloat16 or float32"},
        {"--micro-batch-size 1 --train-iters 9 --fp16 --bf16", "set only one of --fp16 and --bf16"},
        {"--micro-batch-size 1 --train-iters 9 --fp8-format hybrid --fp4-format e2m1",
         "set only one of --fp4-format and --fp8-format"},
        {"--micro-batch-size 1 --train-iters 9 --use-torch-fsdp2", "requires --untie-embeddings"},
        {"--micro-batch-size 1 --train-iters 9 --use-torch-fsdp2 --pipeline-model-parallel-size 2 "
         "--untie-embeddings-and-output-weights",
         "does not support pipeline"},
        {"--micro-batch-size 1 --train-iters 9 --use-torch-fsdp2 --use-distributed-optimizer "
         "--untie-embeddings-and-output-weights",
         "mutually exclusive"},
        {"--micro-batch-size 1 --train-iters 9 --num-distributed-optimizer-instances 2",
         "requires --use-distributed-optimizer"},
        {"--micro-batch-size 1 --train-iters 9 --num-virtual-stages-per-pipeline-rank 2",
         "virtual stages require"},
        {"--micro-batch-size 1 --train-iters 9 --pipeline-model-parallel-size 2 "
         "--num-layers-per-virtual-pipeline-stage 3",
         "4 layers do not divide into stages of 3"},
        {"--micro-batch-size 1 --train-iters 9 --recompute-granularity full",
         "requires --recompute-method"},
        {"--micro-batch-size 1 --train-iters 9 --recompute-method block",
         "require --recompute-granularity full"},
        {"--micro-batch-size 1 --train-iters 9 --recompute-granularity half", "full or selective"},
        {"--micro-batch-size 1 --train-iters 9 --data-path a",
         "set either --data-path or --mock-data"},
        {"--micro-batch-size 1 --train-iters 9 --optimizer muon", "expected adam (AdamW)"},
        {"--micro-batch-size 1 --train-iters 9 --tokenizer-type HuggingFaceTokenizer",
         "--tokenizer-model is required"},
        {"--micro-batch-size 1 --train-iters 9 --save /s", "--save requires --save-interval"},
        {"--micro-batch-size 1 --train-iters 9 --swiglu=1", "--swiglu takes no value"},
        {"--micro-batch-size 1 --train-iters 9 --seq-length", "--seq-length requires a value"},
        {"--micro-batch-size 1 --train-iters 9 --seq-length --bf16",
         "--seq-length requires a value"},
        {"--micro-batch-size 1 --train-iters 9 --hiden-size 3", "did you mean --hidden-size?"},
        {"--micro-batch-size 1 --train-iters 9 nonsense", "expected a --flag"},
        {"--micro-batch-size 1 --train-iters 9 --num-layers x", "--num-layers = x"},
        {"--micro-batch-size 1 --train-iters 9 --attention-dropout much",
         "--attention-dropout = much"},
        {"--micro-batch-size 1 --train-iters 9 --weight-decay -1", "optimizer.weight_decay=-1"},
        {"--micro-batch-size 1 --train-iters 9 --eval-iters many", "--eval-iters = many"},
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        enum status st = convert(&im, cases[i][0]);
        bool fine = st == STATUS_CONFIG && strstr(status_message(), cases[i][1]);
        if (!fine) print_error("%s gave: %s\n", cases[i][0], st ? status_message() : "no error");
        failures += !fine;
        import_release(&im);
    }
    CHECK(!failures);
}
