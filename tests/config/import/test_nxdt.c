// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"

static const char hf[] = "tests/config/data/nxdt-hf-llama3-70b.yaml";
static const char megatron[] = "tests/config/data/nxdt-megatron-llama-7b.yaml";

/* Imports the file with edits, under the name conf.yaml. */
static enum status convert(struct import *im, const char *file, const char *const (*edits)[2],
                           size_t num_edits)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(file, 1 << 20, &bytes));
    char *text = heap_string(bytes.data, bytes.len);
    for (size_t i = 0; i < num_edits && edits[i][0]; i++) {
        char *next = imported_replace(text, edits[i][0], edits[i][1]);
        free(text);
        text = next;
    }
    enum status st = import_nxdt(im, text, strlen(text), "conf.yaml", NULL, 0);
    free(text);
    text_release(&bytes);
    return st;
}

#define EIGHT                                                                                      \
    {"num_layers: 80", "num_layers: 32"}, { "hidden_size: 8192", "hidden_size: 4096" }
#define STAGES_1                                                                                   \
    {                                                                                              \
        "pipeline_model_parallel_size: 8", "pipeline_model_parallel_size: 1"                       \
    }
#define LINEAR                                                                                     \
    {"name: CosineAnnealing, warmup_steps: 2000",                                                  \
     "name: LinearAnnealingWithWarmUp, warmup_steps: 100"},                                        \
    {                                                                                              \
        "min_lr: 1e-06, constant_steps: 0", ""                                                     \
    }

/* The Llama files of NxD Training's examples/conf, as edits of two of them. */
static const struct {
    const char *name, *base;
    int ranks;
    const char *edits[10][2];
    const char *expected[28];
} files[] = {
    {"hf_llama3_70B",
     hf,
     512,
     {{0}},
     {"debug.seed=1234",
      "training.steps=30000",
      "metrics.log_freq=10",
      "metrics.enable_tensorboard=true",
      "training.max_norm=1.0",
      "checkpoint.interval=10",
      "checkpoint.keep_latest_k=2",
      "parallelism.tensor_parallel_degree=32",
      "parallelism.pipeline_parallel_degree=8",
      "parallelism.fsdp_shard_gradients=false",
      "training.global_batch_size=1024",
      "training.seq_len=8192",
      "model.n_layers=80",
      "model.rope_scaling=\"none\"",
      "optimizer.lr=1.5e-05",
      "optimizer.weight_decay=0.1",
      "optimizer.beta2=0.95",
      "lr_scheduler.formula=\"nxdt\"",
      "lr_scheduler.warmup_steps=2000",
      "lr_scheduler.min_lr_factor=0.06666666666666667",
      "validation.enable=false",
      "activation_checkpoint.mode=\"selective\"",
      "model.init=\"normal\""}},
    {"hf_llama3_70B_trn2",
     hf,
     512,
     {{"devices: 32, num_nodes: 16",
       "devices: 64, lnc: 2, sequential_move_factor: 32, num_nodes: 8"},
      {"max_steps: 30000", "max_steps: 10000"},
      {"every_n_train_steps: 10", "every_n_train_steps: 1000"},
      {"pipeline_model_parallel_size: 8", "pipeline_model_parallel_size: 4"},
      {"  num_layers: 80",
       "  num_layers: 80\n  pipeline_cuts: [model.layers.18, model.layers.39, model.layers.60]"},
      {"[CoreAttention, LlamaMLP]", "[LlamaRMSNorm, ActivationMultiplyMLP]"}},
     {"parallelism.pipeline_parallel_split_points=[\"layers.19\", \"layers.40\", \"layers.61\"]",
      "parallelism.pipeline_parallel_degree=4", "training.steps=10000",
      "checkpoint.interval=1000"}},
    {"hf_llama3_70B_CP",
     hf,
     512,
     {{"context_parallel_size: 1", "context_parallel_size: 2"},
      {"flash_attention: True", "flash_attention: False, ring_attention: True"}},
     {"parallelism.context_parallel_degree=2", "parallelism.tensor_parallel_degree=32"}},
    {"hf_llama3.1_70B",
     hf,
     1024,
     {{"num_nodes: 16", "num_nodes: 32"},
      {"every_n_train_steps: 10", "every_n_train_steps: 30000"},
      {"max_position_embeddings: 8192", "max_position_embeddings: 131072"},
      {"  fuse_qkv: True\n", ""}},
     {"model.rope_scaling=\"llama3\"", "checkpoint.interval=30000", "model.flavor=\"70B\""}},
    {"hf_llama3_8B",
     hf,
     128,
     {{"num_nodes: 16", "num_nodes: 4"},
      {"max_steps: 30000", "max_steps: 10000"},
      {"val_check_interval: 30001", "val_check_interval: 10001"},
      STAGES_1,
      EIGHT,
      {"lr: 0.000015", "lr: 1.5e-4"},
      {"weight_decay: 0.1", "weight_decay: 0.01"},
      LINEAR},
     {"training.steps=10000", "model.flavor=\"8B\"", "model.dim=4096", "optimizer.lr=0.00015",
      "optimizer.weight_decay=0.01", "lr_scheduler.formula=\"megatron\"",
      "lr_scheduler.decay_type=\"linear\"", "lr_scheduler.warmup_steps=100",
      "lr_scheduler.min_lr_factor=0.0", "parallelism.pipeline_parallel_degree=1"}},
    {"hf_llama3_8B_trn2",
     hf,
     64,
     {{"devices: 32, num_nodes: 16", "devices: 64, lnc: 2, num_nodes: 1"},
      STAGES_1,
      EIGHT,
      {"tensor_model_parallel_size: &tp 32", "tensor_model_parallel_size: 16"},
      {"kv_replicator: 4", "kv_replicator: 2"},
      {"granularity: selective", "granularity: null"}},
     {"parallelism.tensor_parallel_degree=16", "activation_checkpoint.mode=\"none\""}},
    {"hf_llama3.1_8B",
     hf,
     1024,
     {{"num_nodes: 16", "num_nodes: 32"},
      STAGES_1,
      EIGHT,
      {"max_position_embeddings: 8192", "max_position_embeddings: 131072"},
      {"requests: 5", "requests: 3"}},
     {"model.name=\"llama3.1\"", "model.flavor=\"8B\"", "model.rope_scaling=\"llama3\""}},
    {"hf_llama3.1_405B_trn1",
     hf,
     2048,
     {{"num_nodes: 16", "num_nodes: 64"},
      {"pipeline_model_parallel_size: 8", "pipeline_model_parallel_size: 32"},
      {"global_batch_size: 1024", "global_batch_size: 256"},
      {"num_layers: 80", "num_layers: 126"},
      {"hidden_size: 8192", "hidden_size: 16384"},
      {"granularity: selective", "granularity: full"},
      {"[CoreAttention, LlamaMLP]", "null"},
      {"log_every_n_steps: 10", "log_every_n_steps: 1"}},
     {"model.flavor=\"405B\"", "model.n_layers=126", "training.global_batch_size=256",
      "activation_checkpoint.mode=\"full\"", "parallelism.pipeline_parallel_remainder=\"last\"",
      "metrics.log_freq=1"}},
    {"hf_llama3_8B_SFT",
     hf,
     32,
     {{"num_nodes: 16", "num_nodes: 1"},
      {"val_check_interval: 30001", "val_check_interval: 500"},
      {"limit_val_batches: 0.0", "limit_val_batches: 1.0"},
      STAGES_1,
      EIGHT,
      {"global_batch_size: 1024\n  train_dir: /home/ubuntu/examples_datasets/"
       "wikicorpus_llama3_tokenized_8k",
       "global_batch_size: 64\n  train_dir: /data/training.jsonl\n  val_dir: /data/val.jsonl\n"
       "  dev_choose_samples: 2250\n  seq_length: 4096\n  tokenizer: {type: /data/tok}"},
      {"resume_from_checkpoint: null", "resume_from_checkpoint: /home/ubuntu/ckpt/"},
      {"  use_cpu_initialization: True",
       "  use_cpu_initialization: True\n  weight_init_only: True"},
      {"precision:\n", "model_alignment_strategy: {sft: {packing: True}}\nprecision:\n"}},
     {"training.seq_len=4096", "training.global_batch_size=64", "data.tokenizer=\"/data/tok\"",
      "checkpoint.initial_load_path=\"/home/ubuntu/ckpt/\"",
      "checkpoint.initial_load_model_only=true", "validation.enable=true", "validation.freq=500",
      "validation.dataset_path=\"/data/val.jsonl\""}},
    {"hf_llama3_8B_SFT_lora",
     hf,
     32,
     {{"num_nodes: 16", "num_nodes: 1"},
      STAGES_1,
      EIGHT,
      {"zero1: True", "zero1: False"},
      {"type: 'mixed_precision'", "type: 'autocast'"},
      {"precision:\n", "model_alignment_strategy: {peft: {lora_rank: 16}}\nprecision:\n"}},
     {"parallelism.data_parallel_shard_degree=1", "parallelism.data_parallel_replicate_degree=1",
      "training.mixed_precision_param=\"bfloat16\""}},
    {"hf_llama3_8B_DPO",
     hf,
     32,
     {{"num_nodes: 16", "num_nodes: 1"},
      STAGES_1,
      EIGHT,
      {"global_batch_size: 1024", "global_batch_size: 4"},
      {"lr: 0.000015", "lr: 5.0e-7"},
      LINEAR,
      {"precision:\n", "model_alignment_strategy: {dpo: {kl_beta: 0.01}}\nprecision:\n"}},
     {"training.global_batch_size=4", "optimizer.lr=5e-07"}},
    {"hf_llama3_8B_ORPO",
     hf,
     32,
     {{"num_nodes: 16", "num_nodes: 1"},
      STAGES_1,
      EIGHT,
      {"precision:\n", "model_alignment_strategy: {orpo: {beta: 0.1}}\nprecision:\n"}},
     {"model.n_layers=32"}},
    {"hf_llama_7B",
     hf,
     32,
     {{"num_nodes: 16", "num_nodes: 1"},
      STAGES_1,
      {"num_layers: 80", "num_layers: 4"},
      {"hidden_size: 8192", "hidden_size: 4096"},
      {"  rope_theta: 500000.0\n", ""},
      {"tensor_model_parallel_size: &tp 32", "tensor_model_parallel_size: 8"}},
     {"model.name=\"llama2\"", "model.flavor=\"7B\"", "model.n_layers=4"}},
    {"megatron_llama_7B",
     megatron,
     32,
     {{0}},
     {"training.seq_len=4096", "model.ffn_hidden=11008", "model.n_kv_heads=32",
      "model.rope_theta=1e+04", "model.init=\"megatron\"", "model.init_std=0.021",
      "optimizer.lr=0.0003", "optimizer.decay_norms=false", "lr_scheduler.min_lr_factor=0.1",
      "lr_scheduler.formula=\"nxdt\"", "data.order=\"megatron\"", "data.split=\"980,10,10\"",
      "data.blend=\"weights\"", "validation.enable=true", "validation.freq=20000",
      "validation.steps=1", "data.tokenizer=\"/home/ubuntu/llama_tokenizer\"",
      "parallelism.tensor_parallel_degree=8", "model.tie_embeddings=false"}},
    {"megatron_llama_70b",
     megatron,
     256,
     {{"num_nodes: 1", "num_nodes: 8"},
      {"pipeline_model_parallel_size: 1", "pipeline_model_parallel_size: 16"},
      {"global_batch_size: 1024", "global_batch_size: 512"},
      {"num_layers: 32", "num_layers: 80"},
      {"hidden_size: 4096", "hidden_size: 8192"},
      {"ffn_hidden_size: 11008", "ffn_hidden_size: 28672"},
      {"num_attention_heads: 32", "num_attention_heads: 64"},
      {"num_kv_heads: 32", "num_kv_heads: 8"},
      {"init_method_std: 0.021", "init_method_std: 0.02"},
      {"granularity: selective", "granularity: full"}},
     {"model.dim=8192", "model.n_kv_heads=8", "parallelism.pipeline_parallel_degree=16",
      "activation_checkpoint.mode=\"full\""}},
    {"megatron_llama2_7B_SFT",
     megatron,
     32,
     {{"data_prefix: [1.0, "
       "/home/ubuntu/examples_datasets/llama/book.jsonl-processed_text_document]",
       "train_dir: /data/training.jsonl\n  val_dir: /data/val.jsonl\n"
       "  use_sft_style_data_module: True\n  packing: True"},
      {"create_tensorboard_logger: True",
       "create_tensorboard_logger: True\n  wandb_logger_kwargs: {project: llamas}"},
      {"  splits_string: 980,10,10\n", ""}},
     {"data.order=\"streams\"", "validation.dataset_path=\"/data/val.jsonl\"",
      "metrics.wandb_project=\"\""}},
    {"megatron_mistral",
     megatron,
     32,
     {{"num_kv_heads: 32", "num_kv_heads: 8\n  sliding_window_size: 4096"},
      {"ffn_hidden_size: 11008", "ffn_hidden_size: 14336"},
      {"eod_mask_loss: False", "eod_mask_loss: True"},
      {"create_tensorboard_logger: True",
       "create_tensorboard_logger: True\n  create_wandb_logger: True\n"
       "  wandb_logger_kwargs: {project: llamas, name: a}\n"
       "  create_mlflow_logger: True\n  mlflow_logger_kwargs: {experiment_name: herd}"},
      {"warmup_steps: 2000, constant_steps: 0", "warmup_steps: 750, constant_steps: 8000"}},
     {"model.sliding_window=0", "model.n_kv_heads=8", "model.ffn_hidden=14336",
      "lr_scheduler.formula=\"megatron\"", "lr_scheduler.total_steps=12000",
      "lr_scheduler.decay_type=\"cosine\"", "training.loss_norm=\"rank_mean\"",
      "metrics.enable_wandb=true", "metrics.wandb_project=\"llamas\"",
      "metrics.mlflow_experiment=\"herd\""}},
};

TEST(every_example_of_nxd_training_is_translated)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct import im = {0};
        enum status st = convert(&im, files[i].base, files[i].edits, 10);
        if (st) print_error("%s: %s\n", files[i].name, status_message());
        CHECK(!st);
        if (im.num_ranks != files[i].ranks) print_error("%s: ranks\n", files[i].name);
        CHECK(im.num_ranks == files[i].ranks);
        imported_check(&im, files[i].expected);
        import_release(&im);
    }
}

TEST(the_cyclic_loader_is_nemos_sampler)
{
    struct import im = {0};
    const char *const edits[][2] = {
        {"dataloader_type: single", "dataloader_type: cyclic\n  drop_last: True"}};
    const char *const expected[] = {"data.sampler=\"cyclic\"", "data.sampler_ranks=4",
                                    "data.sampler_rows=1", "data.sampler_batch=1024", NULL};
    CHECK_STATUS(OK, convert(&im, megatron, edits, 1));
    imported_check(&im, expected);
    import_release(&im);
    const char *const wrong[][2] = {{"dataloader_type: single", "dataloader_type: random"}};
    CHECK_STATUS(CONFIG, convert(&im, megatron, wrong, 1));
    CHECK_MESSAGE("data.dataloader_type = random: expected single or cyclic");
    import_release(&im);
    const char *const partial[][2] = {
        {"dataloader_type: single", "dataloader_type: cyclic\n  drop_last: False"}};
    CHECK_STATUS(OK, convert(&im, megatron, partial, 1));
    CHECK(imported_has_note(&im, IMPORT_UNSUPPORTED, "data.drop_last", "always dropped"));
    import_release(&im);
}

TEST(bugs_of_the_original_are_reported)
{
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, hf, NULL, 0));
    CHECK(imported_has_note(&im, IMPORT_ORIGINAL_BUG, "model.optim.weight_decay", "applies 0.01"));
    CHECK(imported_has_note(&im, IMPORT_ORIGINAL_BUG, "model.do_layer_norm_weight_decay",
                            "exempts norms from weight decay"));
    CHECK(imported_has_note(&im, IMPORT_IGNORED, "compiler_flags", "nothing is compiled"));
    CHECK(imported_has_note(&im, IMPORT_TRANSLATED, "model.optim.sched.name", "(step + 1)"));
    import_release(&im);
    const char *const edits[][2] = {{"type: 'mixed_precision'", "type: mixed_precisionSR"},
                                    {"precision:\n",
                                     "model_alignment_strategy: {dpo: {kl_beta: 0.01}}\n"
                                     "precision:\n"}};
    CHECK_STATUS(OK, convert(&im, hf, edits, 2));
    CHECK(imported_has_note(&im, IMPORT_ORIGINAL_BUG, "precision.type", "mixed_precision_SR"));
    CHECK(imported_has_note(&im, IMPORT_UNSUPPORTED, "precision.type", "stochastic rounding"));
    CHECK(imported_has_note(&im, IMPORT_UNSUPPORTED, "model_alignment_strategy.dpo.kl_beta",
                            "preference optimization"));
    import_release(&im);
}

TEST(config_json_is_read_if_it_exists)
{
    static const char json[] =
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": "
        "96,"
        " \"num_hidden_layers\": 3, \"num_attention_heads\": 6, \"num_key_value_heads\": 2,"
        " \"intermediate_size\": 160, \"vocab_size\": 640, \"rms_norm_eps\": 1e-6,"
        " \"rope_theta\": 70000.0, \"max_position_embeddings\": 512, \"hidden_act\": \"silu\","
        " \"tie_word_embeddings\": true, \"attention_bias\": true, \"mlp_bias\": true}";
    char *path = file_join(test_folder(), "config.json");
    CHECK_STATUS(OK, file_write(path, json, sizeof json - 1));
    struct text bytes = {0};
    struct import im = {0};
    CHECK_STATUS(OK, file_read(hf, 1 << 20, &bytes));
    char *text = imported_replace(bytes.data, "/home/ubuntu/config.json", path);
    const char *const settings[] = {"trainer.max_steps=7",
                                    "optimizer.lr=0.5",
                                    "distributed_strategy.tensor_model_parallel_size=2",
                                    "distributed_strategy.pipeline_model_parallel_size=1",
                                    "trainer.devices=2",
                                    "trainer.num_nodes=1",
                                    "model.optim.sched.warmup_steps=2",
                                    "model.num_layers=3",
                                    "model.hidden_size=96"};
    CHECK_STATUS(OK, import_nxdt(&im, text, strlen(text), "conf.yaml", settings, 9));
    const char *const expected[] = {"model.dim=96",
                                    "model.n_layers=3",
                                    "model.vocab_size=640",
                                    "model.n_kv_heads=2",
                                    "model.ffn_hidden=160",
                                    "model.norm_eps=1e-06",
                                    "model.tie_embeddings=true",
                                    "model.attention_bias=\"all\"",
                                    "model.mlp_bias=true",
                                    "model.rope_theta=5e+05", /* the YAML has precedence */
                                    "training.steps=7",
                                    "optimizer.lr=0.5",
                                    "parallelism.tensor_parallel_degree=2",
                                    NULL};
    imported_check(&im, expected);
    import_release(&im);
    text_release(&bytes);
    free(text), free(path);
}

TEST(overrides_may_add_keys_and_lists)
{
    struct text bytes = {0};
    struct import im = {0};
    const char *const settings[] = {"+model.weight_init_only=True",
                                    "exp_manager.resume_from_checkpoint=/weights/step=10.ckpt",
                                    "++data.data_prefix=[0.3,/a,0.7,/b]", "trainer.max_steps=9000"};
    const char *const expected[] = {"checkpoint.initial_load_path=\"/weights/step=10.ckpt\"",
                                    "checkpoint.initial_load_model_only=true",
                                    "data.blend=\"weights\"",
                                    "training.steps=9000",
                                    "metrics.console=\"nxdt\"",
                                    "metrics.tensorboard_tags=\"nxdt\"",
                                    NULL};
    CHECK_STATUS(OK, file_read(megatron, 1 << 20, &bytes));
    CHECK_STATUS(OK, import_nxdt(&im, bytes.data, bytes.len, "conf.yaml", settings, 4));
    CHECK(im.num_sources == 2 && !strcmp(im.sources[1].path, "/b"));
    imported_check(&im, expected);
    import_release(&im);
    const char *const wrong[] = {"model.weight_init_ony=True"}, *const broken[] = {"seed=[1"};
    CHECK_STATUS(CONFIG, import_nxdt(&im, bytes.data, bytes.len, "conf.yaml", wrong, 1));
    import_release(&im);
    CHECK_STATUS(DATA, import_nxdt(&im, bytes.data, bytes.len, "conf.yaml", broken, 1));
    CHECK_MESSAGE("seed=[1: ");
    import_release(&im);
    text_release(&bytes);
}

TEST(nemos_moving_average_is_that_of_the_optimizer)
{
    static const struct {
        const char *ema, *decay, *refused;
    } cases[] = {
        {"{enable: True, decay: 0.9999, apply_ema_every_n_steps: 1, start_step: 0, "
         "evaluate_ema_weights_instead: False}",
         "optimizer.ema_decay=0.9999", NULL},
        {"{enable: True}", "optimizer.ema_decay=0.999", NULL},
        {"{enable: False, decay: 0.5, start_step: 7}", "optimizer.ema_decay=0.0", NULL},
        {"{enable: True, decay: 0.5, start_step: 7}", "optimizer.ema_decay=0.5", "start_step"},
        {"{enable: True, apply_ema_every_n_steps: 2}", "optimizer.ema_decay=0.999",
         "apply_ema_every_n_steps"},
        {"{enable: True, evaluate_ema_weights_instead: True}", "optimizer.ema_decay=0.999",
         "`llamero eval --ema`"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        struct text key = {0};
        text_addf(&key, "exp_manager:\n  ema: %s", cases[i].ema);
        const char *const edits[1][2] = {{"exp_manager:", key.data}};
        const char *const expected[] = {cases[i].decay, NULL};
        CHECK_STATUS(OK, convert(&im, hf, edits, 1));
        enum status st = import_check_refusals(&im);
        CHECK(st == (cases[i].refused ? STATUS_CONFIG : STATUS_OK));
        if (st) CHECK_MESSAGE(cases[i].refused);
        imported_check(&im, expected);
        import_release(&im);
        text_release(&key);
    }
}

TEST(a_moving_average_without_a_decay_in_its_list_is_rejected)
{
    struct import im = {0};
    const char *const edits[1][2] = {
        {"exp_manager:", "exp_manager:\n  ema: {enable: True, decay: []}"}};
    CHECK_STATUS(CONFIG, convert(&im, hf, edits, 1));
    CHECK_MESSAGE("exp_manager.ema.decay = nothing: expected one value");
    import_release(&im);
}

TEST(keys_of_other_models_are_refused)
{
    static const char *const cases[][3] = {
        {"fusions: {softmax: True", "fusions: {softmax: True}\n  moe: {num_experts: 8",
         "mixture-of-experts"},
        {"qkv_linear: True", "activation: gelu", "its activation is SwiGLU"},
        {"qkv_linear: True", "normalization: layernorm", "its normalization is RMSNorm"},
        {"qkv_linear: True", "position_embedding_type: learned_absolute", "it uses RoPE"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        const char *const edits[1][2] = {{cases[i][0], cases[i][1]}};
        CHECK_STATUS(OK, convert(&im, hf, edits, 1));
        CHECK_STATUS(CONFIG, import_check_refusals(&im));
        CHECK_MESSAGE(cases[i][2]);
        import_release(&im);
    }
}

TEST(a_wrong_yaml_is_rejected_with_a_clear_message)
{
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"seed: 1234", "seed: abc", "conf.yaml:5: seed: debug.seed=abc"},
        {"seed: 1234", "seed: [1, 2]", "seed = 1 2: expected one value"},
        {"seed: 1234", "sed: 1234",
         "conf.yaml:5: sed: not a key of NxD Training; did you mean seed?"},
        {"seed: 1234", "seed: 1\nseed: 2", "conf.yaml:6:1: duplicate key seed"},
        {"name: hf_llama", "name: [a, {b: c}]", "expected a list of scalars, got a mapping"},
        {"model_source: hf", "model_source: tf", "model_source = tf: expected hf or megatron"},
        {"devices: 32", "devices: many", "trainer.devices = many: expected a whole number"},
        {"devices: 32", "devices: -2", "trainer.devices = -2"},
        {"devices: 32", "devices: 31", "496 ranks: must be a multiple"},
        {"num_nodes: 16", "num_nodes: 1125899906842624", "too large"},
        {"num_nodes: 16", "num_nodes: 9999999999999999999",
         "trainer.num_nodes = 9999999999999999999"},
        {"max_steps: 30000", "max_steps: 3e4", "trainer.max_steps = 3e4: expected a whole number"},
        {"max_steps: 30000", "max_step: 30000", "${trainer.max_steps}: no such key"},
        {"log_every_n_steps: 10", "log_every_n_steps: 0", "metrics.log_freq=0"},
        {"val_check_interval: 30001", "val_check_interval: never", "trainer.val_check_interval"},
        {"limit_val_batches: 0.0", "limit_val_batches: some",
         "limit_val_batches = some: expected a number"},
        {"gradient_clip_val: 1.0", "gradient_clip_val: -1", "training.max_norm=-1"},
        {"gradient_clip_val: 1.0", "gradient_clip_value: 1.0",
         "did you mean trainer.gradient_clip_val?"},
        {"tensor_model_parallel_size: &tp 32", "tensor_model_parallel_size: 0",
         "tensor parallel size = 0: must be between 1 and"},
        {"tensor_model_parallel_size: &tp 32", "tensor_model_parallel_size: 99999999", "99999999"},
        {"tensor_model_parallel_size: &tp 32", "tensor_model_parallel_size: *tp", "unknown anchor"},
        {"pipeline_model_parallel_size: 8", "pipeline_model_parallel_size: 3",
         "must be a multiple of tensor x pipeline"},
        {"virtual_pipeline_model_parallel_size: 1", "virtual_pipeline_model_parallel_size: 3",
         "80 layers: must be a multiple of 8 x 3"},
        {"context_parallel_size: 1", "context_parallel_size: 1.5", "context_parallel_size = 1.5"},
        {"zero1: True", "zero1: maybe", "zero1 = maybe: expected true or false"},
        {"kv_replicator: 4", "kv_replicators: 4",
         "did you mean distributed_strategy.kv_replicator?"},
        {"create_checkpoint_callback: True", "create_checkpoint_callback: 7",
         "checkpoint.enable=7"},
        {"save_top_k: 1", "save_top_k: best", "save_top_k = best"},
        {"save_top_k: 1", "save_top_k: -2", "save_top_k = -2"},
        {"every_n_train_steps: 10", "every_n_train_steps: 0", "checkpoint.interval=0"},
        {"async_checkpointing: False", "async_checkpointing: [True]\n  async: 1",
         "exp_manager.async: not a key of"},
        {"${multiply:", "${divide:", "unknown resolver; only multiply is supported"},
        {"${multiply:", "${oc.env:", "environment variables are not read"},
        {"${multiply:${distributed_strategy.tensor", "${multiply:x${distributed_strategy.tensor",
         "multiply: expected whole numbers"},
        {"${distributed_strategy.tensor_model_parallel_size}", "${distributed_strategy.tp}",
         "${distributed_strategy.tp}: no such key"},
        {"${trainer.max_steps}", "${trainer}", "expected a scalar value, got a list or a mapping"},
        {"${trainer.max_steps}", "${trainer.max_steps", "the closing brace is missing"},
        {"${trainer.max_steps}", "${.max_steps}", "refers to itself"},
        {"${trainer.max_steps}", "${......a}", "no such parent mapping"},
        {"micro_batch_size: 1", "micro_batch_size: 0", "micro batch size = 0: must be between 1"},
        {"micro_batch_size: 1", "micro_batch_size: 3", "must be a multiple of micro batch size"},
        {"global_batch_size: 1024", "global_batch_size: 0",
         "data.global_batch_size = 0: expected at least 1"},
        {"global_batch_size: 1024", "global_batch_size: 1023",
         "global batch size 1023: must be a multiple"},
        {"global_batch_size: 1024", "global_batch_size: 99999999999", "too large"},
        {"  train_dir", "  trian_dir", "did you mean data.train_dir?"},
        {"num_layers: 80", "num_layers: lots", "model.num_layers = lots"},
        {"num_layers: 80", "num_layers: 9999", "model.n_layers=9999"},
        {"hidden_size: 8192", "hidden_size: 1000", "hidden_size = 1000 with rope_theta = 500000"},
        {"rope_theta: 500000.0", "rope_theta: fast", "rope_theta = fast: expected a number"},
        {"rope_theta: 500000.0", "rope_thta: 500000.0", "did you mean model.rope_theta?"},
        {"encoder_seq_length: 8192", "encoder_seq_length: 0", "training.seq_len=0"},
        {"granularity: selective", "granularity: partial",
         "partial: expected selective, full or null"},
        {"do_layer_norm_weight_decay: True", "do_layer_norm_weight_decay: 2", "true or false"},
        {"name: adamw", "name: sgd", "model.optim.name = sgd: expected adamw"},
        {"lr: 0.000015", "lr: fast", "model.optim.lr = fast: expected a number"},
        {"lr: 0.000015", "lr: 0", "min_lr = 1e-06: expected a number from 0 to the peak rate"},
        {"weight_decay: 0.1", "weight_decay: -1", "optimizer.weight_decay=-1"},
        {"betas: [0.9, 0.95]", "betas: [0.9]", "expected a list of two"},
        {"betas: [0.9, 0.95]", "betas: [0.9, 1.5]", "optimizer.beta2=1.5"},
        {"name: CosineAnnealing", "name: WarmupHoldPolicy",
         "CosineAnnealing or LinearAnnealingWithWarmUp"},
        {"warmup_steps: 2000", "warmup_steps: -1", "lr_scheduler.warmup_steps=-1"},
        {"constant_steps: 0", "constant_steps: 40000",
         "yaml:68: model.optim.sched.constant_steps = 40000: expected at most the 30000 steps"},
        {"min_lr: 1e-06", "min_lr: 1", "from 0 to the peak rate"},
        {"type: 'mixed_precision'", "type: 'bf16'", "precision.type = bf16: expected bf16SR, fp32"},
        {"qkv_linear: True", "pipeline_cuts: [layers.3]", "such as model.layers.18"},
        {"qkv_linear: True", "sliding_window_size: -1", "sliding_window_size = -1"},

        {"qkv_linear: True", "ffn_hidden_size: big", "model.ffn_hidden=big"},
        {"qkv_linear: True", "use_scaled_init_method: 3", "true or false"},
        {"qkv_linear: True", "init_method_std: -1", "model.init_std=-1"},
        {"qkv_linear: True", "? [a, b]\n  : 1", "a key must be a scalar"},
        {"qkv_linear: True", "a: !!python/object:os.system 1", "objects are never constructed"},
        {"qkv_linear: True", "a: \"x\\0y\"", "must not contain NUL"},
        {"qkv_linear: True", "a: [1, 2", "not YAML"},
        {"qkv_linear: True", "\tqkv_linear: True", "not YAML"},
        {"qkv_linear: True", "a: 'x", "not YAML"},
        {"qkv_linear: True", "<<: 5", "<< expects a mapping"},
        {"seed: 1234", "seed: 1234\n---\nb: 1\n", "found a second one"},
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        const char *const edit[][2] = {{cases[i].from, cases[i].to}};
        enum status st = convert(&im, hf, edit, 1);
        bool fine = (st == STATUS_CONFIG || st == STATUS_DATA) &&
                    strstr(status_message(), cases[i].message);
        if (!fine) print_error("%s gave: %s\n", cases[i].to, st ? status_message() : "no error");
        failures += !fine;
        import_release(&im);
    }
    CHECK(!failures);
}

TEST(too_many_settings_are_rejected_not_dropped)
{
    struct import im = {0};
    const char *settings[65];
    for (size_t i = 0; i < 65; i++) settings[i] = "training.steps=3";
    CHECK_STATUS(USAGE, import_nxdt(&im, "a: 1", 4, "conf.yaml", settings, 65));
    CHECK_MESSAGE("conf.yaml: expected at most 64 settings");
    import_release(&im);
}

TEST(a_truncated_yaml_is_imported_or_rejected)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(megatron, 1 << 20, &bytes));
    for (size_t len = 0; len < bytes.len; len++) {
        struct import im = {0};
        enum status st = import_nxdt(&im, bytes.data, len, "conf.yaml", NULL, 0);
        CHECK(!st || st == STATUS_CONFIG || st == STATUS_DATA);
        CHECK(!st || strstr(status_message(), "conf.yaml"));
        import_release(&im);
    }
    text_release(&bytes);
}
