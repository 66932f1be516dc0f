// SPDX-License-Identifier: Apache-2.0
#include "system/draw.h"

#include "base/rng.h"
#include "system/layouts.h"
#include "system/runs.h"

enum { MAX_VALUES = 12 };

/* In `percent` of draws one of the values is chosen, all alike: a value that is listed twice is
 * drawn twice as often.  Each is one or more settings. */
struct choice {
    int percent;
    const char *values[MAX_VALUES];
};

#define MASK      " objective.mask_token=<|mask|>"
#define QUANTIZED "model.converters=[\"float8\"]"
#define DELAYED   QUANTIZED " float8.recipe_name=delayed "
#define FAMILY(name, flavor)                                                                       \
    "model.name=" name " model.flavor=" flavor " model.head_dim=16 model.max_context=0"

static const struct choice choices[] = {
    {25,
     {FAMILY("qwen3", "0.6B"), FAMILY("olmo2", "1B"), FAMILY("qwen2.5", "0.5B"),
      FAMILY("smollm3", "3B"), FAMILY("mistral", "7B"), FAMILY("llama2", "debugmodel"),
      FAMILY("llama3.2", "1B"), FAMILY("frontier", "debugmodel")}},
    {30, {"model.dim=64", "model.dim=48", "model.dim=40"}},
    {30, {"model.n_layers=3", "model.n_layers=4"}},
    {30,
     {"model.n_kv_heads=1", "model.n_kv_heads=4", "model.n_heads=8",
      "model.n_heads=6 model.n_kv_heads=3 model.head_dim=8"}},
    {15, {"model.head_dim=8", "model.head_dim=24", "model.head_dim=32"}},
    {25, {"model.ffn_hidden=48", "model.ffn_hidden=96", "model.ffn_hidden=72"}},
    {65,
     {"model.qk_norm=true", "model.post_norm=true", "model.attention_bias=qkv",
      "model.attention_bias=all model.mlp_bias=true",
      "model.attention_bias=all model.mlp_bias=true", "model.sliding_window=8",
      "model.sliding_window=8", "model.sliding_window=40", "model.partial_rotary_factor=0.5",
      "model.no_rope_layer_interval=2", "model.logits_scaling=8 model.residual_multiplier=0.22",
      "model.embedding_multiplier=12 model.attention_multiplier=0.1"}},
    {4, {"model.attention_bias=none", "model.sliding_window=1", "model.mlp_bias=true"}},
    {20,
     {"model.rope_scaling=none", "model.rope_scaling=llama3 model.rope_original_context=16",
      "model.rope_scaling=linear model.rope_factor=2",
      "model.rope_scaling=dynamic model.rope_factor=2 model.max_context=16",
      "model.rope_scaling=yarn model.rope_factor=4 model.rope_original_context=16",
      "model.rope_scaling=longrope model.rope_original_context=16 model.head_dim=8 "
      "model.rope_short_factor=[1,1,1,2] model.rope_long_factor=[1,2,3,4]"}},
    {30, {"model.tie_embeddings=true", "model.tie_embeddings=false"}},
    {25, {"model.attn_mask_type=block_causal"}},
    {12, {"model.init=normal", "model.init=megatron", "model.depth_init=false"}},
    {12, {"model.vocab_multiple=128", "model.vocab_size=300"}},
    {15,
     {QUANTIZED, DELAYED, DELAYED "float8.amax_history_len=2 float8.margin=1",
      QUANTIZED " float8.filter_fqns=[\"layers.0.\",\"w2\"]"}},
    {25,
     {"objective.name=masked" MASK, "objective.name=masked objective.mask_probability=0.6" MASK,
      "objective.name=diffusion" MASK}},
    {40, {"data.streams=1", "data.streams=3", "data.streams=16"}},
    {30, {"data.shuffle_window=1", "data.shuffle_window=16"}},
    {10, {"data.packing=best_fit model.attn_mask_type=block_causal"}},
    {2, {"data.packing=best_fit"}},
    {10, {"data.row_overlap=false"}},
    {15, {"data.prefetch=0", "data.prefetch=1", "data.prefetch=20"}},
    {15, {"data.eos=false", "data.bos=false", "data.eod_mask_loss=true", "data.seed=7"}},
    {30, {"training.local_batch_size=1", "training.local_batch_size=4"}},
    {50,
     {"training.global_batch_size=8", "training.global_batch_size=12",
      "training.global_batch_size=6", "training.global_batch_size=5"}},
    {5, {"training.global_batch_size=-1"}},
    {20, {"training.seq_len=16", "training.seq_len=48", "training.seq_len=24"}},
    {45, {"training.mixed_precision_param=float32"}},
    {8, {"training.loss_norm=rank_mean"}},
    {10, {"training.z_loss=1e-3"}},
    {10, {"training.max_norm=0", "training.max_norm=0.1"}},
    {40,
     {"training.determinism=elastic", "training.determinism=elastic training.global_batch_size=8",
      "training.determinism=elastic training.global_batch_size=8 training.local_batch_size=1",
      "training.determinism=elastic training.global_batch_size=12 training.local_batch_size=2",
      "training.determinism=elastic training.canonical_microbatches=2"}},
    {4, {"training.batch_ramp=[2,2,8]"}},
    {50,
     {"optimizer.name=Muon", "optimizer.name=Muon optimizer.nesterov=false",
      "optimizer.name=Muon optimizer.adjust_lr_fn=match_rms_adamw optimizer.ns_steps=3",
      "training.gradient_dtype=bfloat16", "optimizer.state_dtype=int8 model.dim=64"}},
    {15, {"optimizer.state_dtype=bfloat16"}},
    {15, {"optimizer.master_weights=split training.mixed_precision_param=bfloat16"}},
    {3, {"optimizer.master_weights=split"}},
    {20, {"optimizer.ema_decay=0.9"}},
    {10, {"optimizer.decoupled_lr=1e-3"}},
    {2, {"optimizer.offload=true", "activation_checkpoint.offload=true"}},
    {15, {"optimizer.weight_decay=0", "optimizer.decay_norms=false", "optimizer.beta1=0"}},
    {30,
     {"lr_scheduler.decay_type=cosine", "lr_scheduler.decay_type=sqrt",
      "lr_scheduler.min_lr_factor=0.1", "lr_scheduler.decay_ratio=0.5",
      "lr_scheduler.formula=megatron lr_scheduler.decay_type=inverse_sqrt",
      "lr_scheduler.formula=megatron", "lr_scheduler.formula=nxdt",
      "lr_scheduler.formula=frontier"}},
    {50,
     {"activation_checkpoint.mode=none", "activation_checkpoint.mode=full",
      "activation_checkpoint.selective_ac_option=2"}},
    {85,
     {"validation.enable=true", "validation.enable=true validation.steps=2",
      "validation.enable=true validation.freq=2",
      "validation.enable=true validation.local_batch_size=3",
      "validation.enable=true validation.seq_len=16",
      "validation.enable=true validation.dataset_path= data.validation_share=0.1 "
      "validation.steps=3"}},
    {40,
     {"checkpoint.async_mode=async", "checkpoint.async_mode=async_with_pinned_mem",
      "checkpoint.enable_first_step_checkpoint=true", "checkpoint.keep_latest_k=2"}},
    {20,
     {"guard.hash_every=2", "guard.replay_every=2", "guard.check_collectives=1",
      "guard.skip_steps=[[2,2]]", "guard.skip_rows=[[3,5]]", "debug.check_collectives=true"}},
    {75, {"debug.seed=1", "debug.seed=123456789"}},
    {25,
     {"parallelism.fsdp_reshard_after_forward=never",
      "parallelism.fsdp_reshard_after_forward=always", ZERO1}},
    {15, {"device.cpu=avx2", "device.cpu=reference"}},
    {12,
     {"parallelism.pipeline_parallel_remainder=last",
      "parallelism.pipeline_parallel_layers_per_stage=1",
      "parallelism.pipeline_parallel_first_stage_less_layers=0",
      "parallelism.pipeline_parallel_last_stage_less_layers=0",
      "parallelism.pipeline_parallel_split_points=[\"layers.1\"]"}},
    {15, {"model.rope_theta=100", "model.norm_eps=1e-3", "model.init_std=0.02"}},
    {15,
     {"optimizer.beta2=0.999", "optimizer.eps=1e-4",
      "optimizer.decoupled_lr=2e-3 lr_scheduler.decoupled_min_lr_factor=0.2"}},
    {4, {"optimizer.name=Muon optimizer.momentum=0.5"}},
    {15,
     {"lr_scheduler.warmup_steps=0", "lr_scheduler.warmup_steps=1", "lr_scheduler.total_steps=12"}},
    {8,
     {DELAYED "float8.amax_compute_algo=most_recent",
      QUANTIZED " float8.scaling_type_input=delayed",
      QUANTIZED " float8.force_recompute_fp8_weight_in_bwd=true"}},
    {15, {"checkpoint.interval=1", "checkpoint.interval=2", "checkpoint.interval=4"}},
    {6,
     {"checkpoint.last_save_model_only=true",
      "checkpoint.last_save_model_only=true checkpoint.export_dtype=bfloat16"}},
    {10, {"guard.nonfinite=skip", "guard.nonfinite=rollback", "guard.on_spike=rollback"}},
    {10,
     {"metrics.log_parameter_norm=true", "metrics.enable_tensorboard=true",
      "metrics.console=megatron", "metrics.console=nxdt",
      "profiling.enable_profiling=true profiling.profile_freq=2"}},
    {6, {"data.on_bad_record=skip"}},
    {12,
     {"validation.local_batch_size=8", "validation.seq_len=64",
      "validation.seq_len=64 validation.local_batch_size=4"}},
    {8, {"model.head_dim=64", "model.head_dim=128"}},
    {10,
     {QUANTIZED, DELAYED, QUANTIZED " float8.force_recompute_fp8_weight_in_bwd=true",
      QUANTIZED
      " training.local_batch_size=1 validation.enable=true validation.local_batch_size=8"}},
};

/* Of runs on a GPU. */
static const struct choice gpu_choices[] = {
    {30, {"optimizer.offload=true"}},
    {30, {"activation_checkpoint.offload=true"}},
    {20, {"device.graphs=false", "device.graphs=true"}},
    {10, {"device.deterministic=false"}},
    {10, {"device.threads=3"}},
};
#define CHUNKED  " parallelism.pipeline_parallel_schedule=Interleaved1F1B"
#define GPIPE    " parallelism.pipeline_parallel_schedule=GPipe"
#define TWO_ROWS " parallelism.pipeline_parallel_microbatch_size=2"

const struct draw_layout draw_layouts[] = {
    {1, 1, SHARD(1)},
    {2, 2, SHARD(2)},
    {2, 2, SHARD(1) " " COPIES(2)},
    {4, 4, SHARD(2) " " COPIES(2)},
    {4, 4, SHARD(4)},
    {1, 1, SHARD(1) " device.threads=2"},
    {1, 1, SHARD(1)},
    {3, 3, SHARD(3)},
    {2, 1, TP(2)},
    {2, 1, PP(2)},
    {2, 1, CP(2)},
    {2, 1, PP(2) GPIPE TWO_ROWS},
    {4, 2, SHARD(2) " " TP(2)},
    {4, 2, SHARD(2) " " CP(2)},
    {4, 2, SHARD(2) " " PP(2) CHUNKED},
    {4, 1, TP(2) " " CP(2)},
    {4, 1, TP(2) " " PP(2) CHUNKED},
    {4, 1, TP(4)},
    {4, 1, PP(4)},
    {2, 2, SHARD(3)},
};
_Static_assert(sizeof draw_layouts / sizeof *draw_layouts == DRAW_LAYOUTS, "layouts");
int draw_below(struct draw *d, int n)
{
    return (int)rng_below((uint64_t)n, d->number, RNG_TEST, 0, d->position++);
}

static const char *const stages[] = {
    "[[data.stage]]\nat_step = 2\nseq_len = 16\n",
    "[[data.stage]]\nat_step = 4\nweights = [1.0, 3.0]\n",
    "[[data.stage]]\nat_step = 3\nattn_mask_type = \"block_causal\"\n",
    "[[data.stage]]\nat_step = 2\nlocal_batch_size = 1\nglobal_batch_size = 8\n",
};

static const char *const samplers[] = {
    "data.sampler=cyclic data.sampler_ranks=2 data.sampler_rows=2",
    "data.sampler=cyclic data.sampler_ranks=1 data.sampler_rows=1 data.sampler_batch=4",
    "data.sampler=cyclic_unsharded data.sampler_ranks=2 data.sampler_rows=1",
    "data.samples=40",
    "data.split=90,10,0",
};

#define TOKENIZER "tokenizer.json"

void draw_write_data(const char *data)
{
    const char *text = test_path(data, "corpus.txt");
    runs_write_corpus(text, 30000);
    runs_write_corpus(test_path(data, "corpus.jsonl"), 30000);
    CHECK(LLAMERO(NULL, NULL, "prepare", "--tokenizer", "bytes", "--output",
                  test_path(data, "tokens"), test_path(data, "corpus.jsonl")) == 0);
    runs_write_corpus(test_path(data, "validation.txt"), 1500);
    CHECK(LLAMERO(NULL, NULL, "tokenizer", "train", "--vocab-size", "290", "--output",
                  test_path(data, TOKENIZER), text) == 0);
}

static void draw_config(struct draw *d, const char *data)
{
    struct text *t = &d->config;
    bool mock = draw_below(d, 12) == 0, two = !mock && draw_below(d, 3) == 0,
         staged = !mock && draw_below(d, 6) == 0, tokens = !mock && draw_below(d, 5) == 0,
         samples = mock || (tokens && !staged && draw_below(d, 2) == 0);
    text_addf(t,
              "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\ndim = 32\nn_layers = 2\n"
              "n_heads = 4\nn_kv_heads = 2\nffn_hidden = 64\ninit_std = 0.3\n"
              "[training]\nlocal_batch_size = 2\nglobal_batch_size = 4\nseq_len = 32\nsteps = %d\n"
              "[lr_scheduler]\nwarmup_steps = 2\n[optimizer]\nlr = 1e-3\n"
              "[metrics]\nlog_freq = 1\npeak_flops = 1e12\n"
              "[checkpoint]\nenable = true\ninterval = 3\n"
              "[validation]\nfreq = 3\nlocal_batch_size = 2\ndataset_path = \"%s/validation.txt\"\n"
              "[device]\nthreads = 1\n"
              "[data]\ntokenizer = \"bytes\"\nstreams = 8\nshuffle_window = 4\n"
              "%s[[data.source]]\npath = \"%s%s\"\n",
              d->steps, data, samples ? "order = \"megatron\"\n" : "", mock ? "" : data,
              mock     ? "mock"
              : tokens ? "/tokens"
                       : "/corpus.txt");
    if (two || staged)
        text_addf(t, "[[data.source]]\npath = \"%s/%s\"\nweight = 0.5\n", data,
                  tokens ? "tokens" : "corpus.jsonl");
    if (staged) text_adds(t, stages[draw_below(d, sizeof stages / sizeof *stages)]);
}

static void choose(struct draw *d, const struct choice *c, size_t n, struct text *settings)
{
    for (size_t i = 0; i < n; i++) {
        int count = 0;
        while (count < MAX_VALUES && c[i].values[count]) count++;
        if (draw_below(d, 100) >= c[i].percent) continue;
        text_addf(settings, " %s", c[i].values[draw_below(d, count)]);
    }
}

void draw_choose_gpu(struct draw *d, struct text *settings)
{
    choose(d, gpu_choices, sizeof gpu_choices / sizeof *gpu_choices, settings);
}

void draw_make(struct draw *d, uint64_t number, const char *data)
{
    *d = (struct draw){.number = number, .folder = test_folder(), .also = ""};
    d->steps = 5 + draw_below(d, 3);
    d->layout = &draw_layouts[draw_below(d, DRAW_LAYOUTS)];
    draw_config(d, data);
    text_adds(&d->settings, "");
    choose(d, choices, sizeof choices / sizeof *choices, &d->settings);
    bool samples = strstr(d->config.data, "megatron"), masked = draw_has(d, "objective.name=");
    if (draw_below(d, 6) == 0 && !masked)
        text_addf(&d->settings, " data.tokenizer=%s/" TOKENIZER, data);
    if (draw_below(d, 2) == 0 && samples)
        text_addf(&d->settings, " %s", samplers[draw_below(d, sizeof samplers / sizeof *samplers)]);
    CHECK_STATUS(OK, file_write(test_path(d->folder, "run.toml"), d->config.data, d->config.len));
}

void draw_release(struct draw *d)
{
    CHECK_STATUS(OK, file_remove_tree(d->folder));
    text_release(&d->config), text_release(&d->settings);
}

bool draw_has(const struct draw *d, const char *setting)
{
    return strstr(d->settings.data, setting) != NULL;
}

int draw_number_of(const struct draw *d, const char *key, int otherwise)
{
    int number = otherwise;
    for (const char *at = d->settings.data; (at = strstr(at, key)); at += strlen(key))
        if (at[strlen(key)] == '=') number = atoi(at + strlen(key) + 1);
    return number;
}
