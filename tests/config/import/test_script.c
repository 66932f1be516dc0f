// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"

static enum status convert(struct import *im, const char *file, const char *const *words)
{
    char *path = file_join("tests/config/data", file);
    struct text bytes = {0};
    size_t count = 0;
    while (count < 12 && words[count]) count++;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
    enum status st = import_script(im, bytes.data, bytes.len, path, words, count);
    im->file = file; /* the path is freed */
    text_release(&bytes);
    free(path);
    return st;
}

/* The scripts, with variables and arguments that their users set. */
static const struct {
    const char *file;
    int ranks;
    const char *words[12];
    const char *expected[28];
} runs[] = {
    {"megatron-llama3.sh",
     0,
     {0},
     {"model.dim=8192",
      "model.n_layers=80",
      "model.ffn_hidden=28672",
      "model.n_heads=64",
      "model.n_kv_heads=8",
      "training.seq_len=2048",
      "training.steps=12",
      "training.local_batch_size=1",
      "training.global_batch_size=8",
      "parallelism.tensor_parallel_degree=8",
      "parallelism.fsdp_shard_gradients=false",
      "optimizer.lr=0.0001",
      "optimizer.beta2=0.95",
      "optimizer.weight_decay=0.1",
      "optimizer.decay_norms=false",
      "lr_scheduler.warmup_steps=0",
      "lr_scheduler.total_steps=320000",
      "lr_scheduler.min_lr_factor=0.1",
      "lr_scheduler.decay_type=\"cosine\"",
      "model.rope_theta=5e+05",
      "data.tokenizer=\"hf://NousResearch/Meta-Llama-3-8B\"",
      "validation.enable=false",
      "checkpoint.enable=false",
      "device.tune_gemm=true",
      "model.init=\"megatron\""}},
    {"megatron-llama3.sh",
     8,
     {"GEMM_TUNING=0", "MBS=2", "BS=128", "TP=1", "TE_FP8=1", "SEQ_LENGTH=8192", "MODEL_SIZE=8",
      "GPUS_PER_NODE=8"},
     {"model.dim=4096", "model.n_layers=32", "model.ffn_hidden=14336", "model.n_kv_heads=8",
      "training.local_batch_size=2", "training.global_batch_size=128", "training.seq_len=8192",
      "parallelism.tensor_parallel_degree=1", "training.mixed_precision_param=\"bfloat16\"",
      "data.order=\"megatron\"", "data.split=\"1,1,1\"", "metrics.log_freq=1",
      "float8.amax_history_len=1024", "float8.amax_compute_algo=\"max\"", "float8.margin=0",
      "device.tune_gemm=false"}},
    {"megatron-llama3.sh", 0, {"GEMM_TUNING=2"}, {"device.tune_gemm=false"}},
    {"megatron-llama3.sh",
     16,
     {"FSDP=1", "RECOMPUTE=1", "MODEL_SIZE=8", "NNODES=2", "GPUS_PER_NODE=8", "BS=32"},
     {"parallelism.tensor_parallel_degree=1", "parallelism.data_parallel_shard_degree=-1",
      "parallelism.fsdp_reshard_after_forward=\"always\"", "activation_checkpoint.mode=\"full\""}},
    {"megatron-llama3.sh",
     32,
     {"MEGATRON_FSDP=1", "ENABLE_HSDP=1", "HSDP_NUM_REPLICAS=4", "NNODES=4", "GPUS_PER_NODE=8",
      "BS=64", "training.steps=99", "optimizer.lr=3e-4"},
     {"parallelism.data_parallel_replicate_degree=4", "parallelism.data_parallel_shard_degree=-1",
      "training.steps=99", "optimizer.lr=0.0003"}},
    {"megatron-llama3.sh",
     0,
     {"DATA_PATH=0.3 /d/a_text_document 0.7 /d/b_text_document", "SAVE_CKPT_PATH=/ckpt",
      "SAVE_INTERVAL=50", "LOAD_CKPT_PATH=/weights", "PP=2", "BS=16"},
     {"data.blend=\"weights\"", "data.order=\"megatron\"", "checkpoint.enable=true",
      "checkpoint.interval=50", "job.dump_folder=\"/ckpt\"", "checkpoint.keep_latest_k=0",
      "checkpoint.initial_load_path=\"/weights\"", "checkpoint.initial_load_model_only=true",
      "parallelism.pipeline_parallel_degree=2",
      "parallelism.pipeline_parallel_first_stage_less_layers=0"}},
    {"megatron-llama2.sh",
     8,
     {"MODEL_SIZE=7", "TP=2"},
     {"model.dim=4096", "model.n_kv_heads=32", "model.ffn_hidden=11008", "training.seq_len=4096",
      "model.rope_theta=1e+04", "parallelism.tensor_parallel_degree=2", "optimizer.eps=1e-08"}},
    {"megatron-llama2.sh",
     8,
     {"MODEL_SIZE=13", "RECOMPUTE=1", "TP=1"},
     {"model.dim=5120", "model.n_layers=40", "activation_checkpoint.mode=\"full\""}},
    {"megatron-llama2.sh",
     8,
     {"DATA_PATH=/d/a /d/b /d/c", "TOKENIZER_TYPE=Llama2Tokenizer"},
     {"data.blend=\"lengths\"", "data.split=\"99990,8,2\"",
      "data.tokenizer=\"/tmp/tokenizer.model\"", "model.dim=8192", "model.n_kv_heads=8"}},
    {"megatron-slurm.sh",
     16,
     {"7", "2", "128", "4096", "20", "0", "1", "SLURM_NNODES=2"},
     {"training.global_batch_size=256", "training.local_batch_size=2", "training.steps=20",
      "activation_checkpoint.mode=\"full\"", "model.dim=4096",
      "parallelism.tensor_parallel_degree=1"}},
    {"megatron-arrays.sh",
     8,
     {0},
     {"training.steps=15258789", "lr_scheduler.warmup_samples=3906252",
      "lr_scheduler.total_samples=1949218748", "lr_scheduler.formula=\"megatron\"",
      "parallelism.context_parallel_degree=2", "model.rope_theta=1e+06", "model.init_std=0.0134",
      "model.vocab_size=128256", "model.head_dim=128", "validation.steps=32", "validation.freq=100",
      "checkpoint.interval=1000", "job.dump_folder=\"checkpoints/llama3_8b_fp8\"",
      "profiling.enable_profiling=true", "metrics.enable_tensorboard=true",
      "data.split=\"1,1,1\""}},
    {"megatron-arrays.sh",
     8,
     {"/other", "/tok"},
     {"data.tokenizer=\"/tok\"", "data.split=\"99,1,0\"", "job.dump_folder=\"/other\""}},
};

TEST(every_script_is_translated)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct import im = {0};
        enum status st = convert(&im, runs[i].file, runs[i].words);
        if (st) print_error("%s %zu: %s\n", runs[i].file, i, status_message());
        CHECK(!st);
        if (im.num_ranks != runs[i].ranks) print_error("%zu: %lld\n", i, (long long)im.num_ranks);
        CHECK(im.num_ranks == runs[i].ranks);
        imported_check(&im, runs[i].expected);
        import_release(&im);
    }
}

TEST(a_llama_3_script_without_rotary_base_gets_the_right_one_and_a_note)
{
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, "megatron-llama3.sh", (const char *[]){NULL}));
    CHECK(imported_has_note(&im, IMPORT_ORIGINAL_BUG, "", "rotary base of 10000"));
    CHECK(im.config.data.sampler == SAMPLER_cyclic && im.config.data.sampler_rows == 1);
    CHECK_STATUS(OK, import_check_refusals(&im));
    CHECK(imported_has_note(&im, IMPORT_IGNORED, "--rerun-mode", "guard.nonfinite"));
    import_release(&im);
    CHECK_STATUS(OK, convert(&im, "megatron-arrays.sh", (const char *[]){NULL}));
    CHECK(!imported_has_note(&im, IMPORT_ORIGINAL_BUG, "", "rotary"));
    CHECK(im.config.optimizer.decoupled_lr > 0);
    CHECK(imported_has_note(&im, IMPORT_IGNORED, "", "pretrain_gpt.py is assumed to exist"));
    import_release(&im);
}

TEST(wrong_variables_and_values_known_only_at_run_time_are_rejected)
{
    static const struct {
        const char *file, *words[4], *message;
    } cases[] = {
        {"megatron-llama3.sh",
         {"MODEL_SIZE=9"},
         ":95: with these variables the script exits here: Model size"},
        {"megatron-llama3.sh", {"TE_FP8=1", "TE_FP4=1"}, "FP8 and FP4 exclude each other"},
        {"megatron-llama3.sh", {"ENABLE_HSDP=1"}, "HSDP needs MEGATRON_FSDP=1"},
        {"megatron-llama3.sh", {"TE_FP8=1", "TE_FP8_RECIPE=int8"}, "int8 is not supported"},
        {"megatron-llama3.sh", {"OPTIMIZER=sgd"}, "expected adam (AdamW)"},
        {"megatron-llama3.sh", {"NO_TRAINING=1"}, "the script exits here"},
        {"megatron-llama3.sh", {"MBS=3"}, "must be a multiple of micro batch size"},
        {"megatron-llama3.sh", {"MBS=0"}, "micro batch size = 0: must be between 1"},
        {"megatron-llama3.sh", {"MBS=x"}, "--micro-batch-size = x: expected a whole number"},
        {"megatron-llama3.sh", {"TOTAL_ITERS=ten"}, "--train-iters = ten"},
        {"megatron-llama3.sh", {"SEQ_LENGTH=-4"}, "training.seq_len=-4"},
        {"megatron-llama3.sh", {"BS="}, "8"},
        {"megatron-llama3.sh", {"GPUS_PER_NODE=8", "TP=3"}, "8 ranks: must be a multiple"},
        {"megatron-llama3.sh", {"DATA_PATH=0.3 a 0.7"}, ""},
        {"megatron-llama3.sh",
         {"DATA_PATH=0.3 a b c"},
         "each with a weight before it or none with one"},
        {"megatron-llama3.sh",
         {"MBSS=2"},
         "command line: MBSS: the script does not use this variable; did you mean MBS?"},
        {"megatron-llama3.sh", {"training.stps=1"}, "did you mean training.steps?"},
        {"megatron-llama3.sh", {"training.steps=x"}, "training.steps=x"},
        {"megatron-llama2.sh",
         {"TOKENIZER_TYPE=Llama2Tokenizer", "TOKENIZER_MODEL=x"},
         "is not wanted with"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        enum status st = convert(&im, cases[i].file, cases[i].words);
        if (i == 11 || i == 13) { /* an empty variable gets its default; three words are prefixes */
            CHECK(!st);
        } else {
            CHECK_STATUS(CONFIG, st);
            CHECK_MESSAGE(cases[i].message);
        }
        import_release(&im);
    }
}

TEST(files_that_do_not_start_training_are_rejected)
{
    static const struct {
        const char *script, *message;
    } cases[] = {
        {"", "starts neither pretrain_gpt.py nor `accelerate launch`"},
        {"echo hello\n", "starts neither pretrain_gpt.py nor `accelerate launch`"},
        {"python tools/preprocess_data.py --input a\n", "use `llamero prepare`"},
        {"bash -c 'exit 0'\nfalse\npython train.py\n",
         "x.sh: starts neither pretrain_gpt.py nor `accelerate launch`; with these variables "
         "x.sh:1 exits (to replace"},
        {"(exit 0)\nexec python train.py\nexit 1\n", "x.sh: starts neither"},
        {"(exit 0)\n\nexit 1\n", "x.sh:3: with these variables the script exits here"},
        {"\377\376", "not UTF-8"},
        {"if true; then\n", "x.sh:2: expected \"fi\""},
        {"torchrun pretrain_gpt.py\n", "--micro-batch-size is required"},
        {"torchrun pretrain_gpt.py --micro-batch-size\n",
         "x.sh:1: --micro-batch-size requires a value"},
        {"torchrun pretrain_gpt.py --micro-batch-sizes 2\n", "did you mean --micro-batch-size?"},
        {"torchrun pretrain_gpt.py 3\n", "expected a --flag, got \"3\""},
        {"N=$(nproc)\ntorchrun pretrain_gpt.py --micro-batch-size $N\n",
         "x.sh:2: --micro-batch-size $(nproc...): this value is known only when the script runs; "
         "set it on the command line: VAR=VALUE, where VAR is the script's variable for what a "
         "command prints; add one if it has none"},
        {"N=${SLURM_NNODES:-2}\nG=$(rocminfo)\nM=3\n"
         "torchrun pretrain_gpt.py --global-batch-size $((M * N * G))\n",
         "x.sh:4: --global-batch-size $(N,G...): this value is known only when the script runs; "
         "set it on the command line: N=VALUE G=VALUE"},
        {"torchrun pretrain_gpt.py --global-batch-size '$('\n",
         "this value is known only when the script runs; set it on the command line: VAR=VALUE"},
        {"N=${SLURM_NNODES:-2}\n"
         "torchrun pretrain_gpt.py --global-batch-size $((N * $(nproc)))\n",
         "x.sh:2: --global-batch-size $(N,nproc...): this value is known only when the script "
         "runs; set it on the command line: N=VALUE VAR=VALUE, where VAR is"},
        {"N=$(nproc)\nG=$(rocminfo)\n"
         "C=\"torchrun pretrain_gpt.py --global-batch-size $((N * G))\"\neval $C\n",
         "x.sh:4: --global-batch-size $(N,G...): this value is known only when the script runs; "
         "set it on the command line: N=VALUE G=VALUE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        const char *s = cases[i].script;
        CHECK_STATUS(CONFIG, import_script(&im, s, strlen(s), "x.sh", NULL, 0));
        CHECK_MESSAGE(cases[i].message);
        import_release(&im);
    }
}

TEST(a_truncated_script_is_imported_or_rejected)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read("tests/config/data/megatron-arrays.sh", 1 << 20, &bytes));
    for (size_t len = 0; len < bytes.len; len++) {
        struct import im = {0};
        enum status st = import_script(&im, bytes.data, len, "x.sh", NULL, 0);
        CHECK(!st || st == STATUS_CONFIG);
        CHECK(!st || strstr(status_message(), "x.sh"));
        import_release(&im);
    }
    text_release(&bytes);
}
