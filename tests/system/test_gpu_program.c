/* test_gpu_program.c -- compares the program's commands on an emulated GPU (LLAMERO_GPU,
 * tests/llamero-gpu) with the same commands on the CPU. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "comm/launched.h"
#include "system/runs.h"
#include "test.h"

enum { MOST_WORDS = 40 };

#define IN_BF16               "training.mixed_precision_param=bfloat16"
#define SPLIT                 "optimizer.master_weights=split"
#define OFFLOADED_STATE       "optimizer.offload=true"
#define OFFLOADED_ACTIVATIONS "activation_checkpoint.offload=true"

static const char *const model[] = {"model.dim=32",
                                    "model.n_layers=2",
                                    "model.n_heads=4",
                                    "model.n_kv_heads=2",
                                    "model.ffn_hidden=48",
                                    "model.vocab_size=264",
                                    "data.tokenizer=bytes",
                                    "data.streams=4",
                                    "training.local_batch_size=1",
                                    "training.global_batch_size=4",
                                    "training.seq_len=32",
                                    "optimizer.lr=1e-2",
                                    "lr_scheduler.warmup_steps=2",
                                    "lr_scheduler.total_steps=4",
                                    "checkpoint.enable=true",
                                    "checkpoint.interval=2",
                                    "metrics.log_freq=1",
                                    "metrics.log_parameter_norm=true",
                                    "training.mixed_precision_param=float32",
                                    NULL};

static const char *gpu(void)
{
    const char *path = getenv("LLAMERO_GPU");
    if (!path) skip();
    return path;
}

static int run(const char *const *words, struct text *out)
{
    const char *argv[MOST_WORDS] = {gpu()};
    struct text err = {0};
    for (int i = 0; words[i]; i++) argv[i + 1] = words[i];
    int code = test_run(argv, out, &err);
    if (code) print_error("%s: %s\n", words[0], err.data);
    text_release(&err);
    return code;
}
#define RUN(out, ...) run((const char *const[]){__VA_ARGS__, NULL}, out)

static int train(int ranks, const char *folder, const char *dump, const char *const *more)
{
    const char *words[MOST_WORDS] = {gpu(), "train", test_path(folder, "run.toml"), "--quiet"};
    char into[512];
    struct text err = {0};
    int n = 4;
    snprintf(into, sizeof into, "job.dump_folder=%s", test_path(folder, dump));
    words[n++] = into;
    for (int i = 0; model[i]; i++) words[n++] = model[i];
    for (int i = 0; more[i]; i++) words[n++] = more[i];
    int code = ranks > 1 ? launched_command(ranks, words, NULL, &err) : test_run(words, NULL, &err);
    if (code > 0) print_error("%s\n", err.data);
    text_release(&err);
    if (code < 0) skip();
    return code;
}
#define TRAIN(ranks, folder, dump, ...)                                                            \
    train(ranks, folder, dump, (const char *const[]){__VA_ARGS__, NULL})

static const char *new_folder(void)
{
    const char *folder = test_folder();
    runs_write_corpus(test_path(folder, "corpus.txt"), 20000);
    runs_write_config(test_path(folder, "run.toml"), test_path(folder, "corpus.txt"));
    return folder;
}

static void check_resume(const char *optimizer)
{
    const char *folder = new_folder();
    CHECK(TRAIN(1, folder, "straight", "training.steps=4", optimizer) == 0);
    CHECK(TRAIN(1, folder, "cut", "training.steps=2", optimizer) == 0);
    CHECK(TRAIN(1, folder, "cut", "training.steps=4", optimizer) == 0);
    CHECK(TRAIN(1, folder, "cpu", "training.steps=4", "device.kind=cpu", optimizer) == 0);
    const char *step[] = {test_path(folder, "straight/checkpoint/step-4"),
                          test_path(folder, "cut/checkpoint/step-4")};
    struct text out = {0};
    const char *diff[] = {"checkpoint", "diff", step[0], step[1], NULL};
    CHECK(test_llamero(&out, NULL, diff) == 0);
    CHECK_NEAR(runs_metric(test_path(folder, "straight"), "loss"),
               runs_metric(test_path(folder, "cpu"), "loss"), 1e-5);
    text_release(&out);
}

TEST(a_gpu_run_resumes_bit_for_bit_and_is_close_to_the_cpu)
{
    check_resume("optimizer.name=AdamW");
    check_resume("optimizer.name=Muon");
    check_resume("optimizer.ema_decay=0.9");
}

/* Trains with these settings, and again with everything offloaded. */
static void check_offload(int ranks, const char *steps, const char *const *settings)
{
    const char *folder = new_folder(), *words[8] = {NULL};
    char all[64], interval[64], last[2][512];
    int n = 2;
    snprintf(all, sizeof all, "training.steps=%s", steps);
    snprintf(interval, sizeof interval, "checkpoint.interval=%s", steps);
    words[0] = all, words[1] = interval;
    for (int i = 0; settings[i]; i++) words[n++] = settings[i];
    CHECK(train(ranks, folder, "device", words) == 0);
    words[n++] = OFFLOADED_STATE, words[n++] = OFFLOADED_ACTIVATIONS;
    CHECK(train(ranks, folder, "host", words) == 0);
    for (int i = 0; i < 2; i++)
        snprintf(last[i], sizeof last[i], "%s/checkpoint/step-%s",
                 test_path(folder, i ? "host" : "device"), steps);
    struct text out = {0};
    const char *diff[] = {"checkpoint", "diff", last[0], last[1], NULL};
    CHECK(test_llamero(&out, NULL, diff) == 0);
    double norm = runs_metric(test_path(folder, "device"), "parameter_norm");
    CHECK(norm > 0 && norm == runs_metric(test_path(folder, "host"), "parameter_norm"));
    text_release(&out);
}
#define CHECK_OFFLOAD(ranks, steps, ...)                                                           \
    check_offload(ranks, steps, (const char *const[]){__VA_ARGS__, NULL})

TEST(offloading_changes_no_bit_of_a_gpu_run)
{
    CHECK_OFFLOAD(1, "6", IN_BF16, "activation_checkpoint.mode=full");
    CHECK_OFFLOAD(1, "3", IN_BF16, SPLIT, "optimizer.state_dtype=bfloat16");
    CHECK_OFFLOAD(1, "3", IN_BF16, "optimizer.state_dtype=int8", "model.converters=[\"float8\"]");
}

TEST(offloading_changes_no_bit_of_a_gpu_run_on_several_ranks)
{
    CHECK_OFFLOAD(2, "3", IN_BF16);
    CHECK_OFFLOAD(2, "3", "parallelism.tensor_parallel_degree=2");
    CHECK_OFFLOAD(2, "3", IN_BF16, "model.n_layers=4", "parallelism.pipeline_parallel_degree=2");
}

TEST(a_gpu_run_resumes_with_offloaded_state_and_without)
{
    const char *folder = new_folder();
    const char *path = test_path(folder, "straight/checkpoint/step-4");
    struct text out = {0};
    CHECK(TRAIN(1, folder, "straight", "training.steps=4", IN_BF16) == 0);
    CHECK(TRAIN(1, folder, "cut", "training.steps=2", IN_BF16, OFFLOADED_STATE) == 0);
    CHECK(TRAIN(1, folder, "cut", "training.steps=3", IN_BF16) == 0);
    CHECK(TRAIN(1, folder, "cut", "training.steps=4", IN_BF16, OFFLOADED_STATE) == 0);
    const char *diff[] = {"checkpoint", "diff", path, test_path(folder, "cut/checkpoint/step-4"),
                          NULL};
    CHECK(test_llamero(&out, NULL, diff) == 0);
    text_release(&out);
}

TEST(a_gpu_run_says_that_its_bits_vary_if_they_do)
{
    static const char words[] = "with other bits in each run (device.deterministic = false)";
    const char *folder = new_folder();
    struct text varies = {0}, same = {0};
    CHECK(TRAIN(1, folder, "varies", "training.steps=1", "device.deterministic=false") == 0);
    CHECK(TRAIN(1, folder, "same", "training.steps=1") == 0);
    CHECK_STATUS(OK, file_read(test_path(folder, "varies/log.txt"), 1 << 20, &varies));
    CHECK_STATUS(OK, file_read(test_path(folder, "same/log.txt"), 1 << 20, &same));
    CHECK(strstr(varies.data, words) && !strstr(same.data, words));
    text_release(&varies), text_release(&same);
}

TEST(a_gpu_rank_has_as_many_cpu_threads_as_configured)
{
    const char *folder = new_folder();
    struct text log = {0};
    CHECK(TRAIN(1, folder, "3", "training.steps=2", "device.threads=3", IN_BF16, SPLIT,
                "checkpoint.async_mode=async") == 0);
    CHECK(TRAIN(1, folder, "1", "training.steps=2", "device.threads=1", IN_BF16, SPLIT,
                "checkpoint.async_mode=async") == 0);
    CHECK_STATUS(OK, file_read(test_path(folder, "3/log.txt"), 1 << 20, &log));
    CHECK(strstr(log.data, "1 rank of 3 threads, on "));
    runs_check_same_files(test_path(folder, "1/checkpoint/step-2"),
                          test_path(folder, "3/checkpoint/step-2"), ".safetensors");
    text_release(&log);
}

static void check_async(int ranks, const char *const *settings)
{
    const char *folder = new_folder(), *words[8] = {"training.steps=4"};
    int n = 1;
    for (int i = 0; settings[i]; i++) words[n++] = settings[i];
    CHECK(train(ranks, folder, "sync", words) == 0);
    words[n++] = "checkpoint.async_mode=async";
    CHECK(train(ranks, folder, "async", words) == 0);
    for (int i = 0; i < 2; i++) {
        const char *step = i ? "checkpoint/step-4" : "checkpoint/step-2";
        runs_check_same_files(test_path(test_path(folder, "sync"), step),
                              test_path(test_path(folder, "async"), step), ".safetensors");
    }
}
#define CHECK_ASYNC(ranks, ...) check_async(ranks, (const char *const[]){__VA_ARGS__, NULL})

TEST(asynchronous_saves_of_a_gpu_run_write_the_same_files)
{
    CHECK_ASYNC(1, IN_BF16, SPLIT, "optimizer.state_dtype=bfloat16");
    CHECK_ASYNC(1, "model.dim=64", "optimizer.state_dtype=int8", "optimizer.ema_decay=0.9");
    CHECK_ASYNC(1, IN_BF16, SPLIT, OFFLOADED_STATE);
    CHECK_ASYNC(2, IN_BF16, SPLIT, "optimizer.state_dtype=bfloat16");
}

TEST(eval_and_generate_on_a_gpu_match_the_cpu)
{
    const char *folder = new_folder();
    CHECK(TRAIN(1, folder, "run", "training.steps=4") == 0);
    const char *dump = test_path(folder, "run"), *corpus = test_path(folder, "corpus.txt");
    struct text here = {0}, cpu = {0};
    CHECK(RUN(&here, "eval", dump, corpus, "--batches", "2", "--json") == 0);
    CHECK(RUN(&cpu, "eval", dump, corpus, "--batches", "2", "--json", "device.kind=cpu") == 0);
    struct json *a, *b;
    CHECK_STATUS(OK, json_parse(here.data, here.len, "eval", &a));
    CHECK_STATUS(OK, json_parse(cpu.data, cpu.len, "eval", &b));
    CHECK_NEAR(json_number(json_get(a, "loss")), json_number(json_get(b, "loss")), 1e-5);
    CHECK(json_number(json_get(a, "tokens")) == json_number(json_get(b, "tokens")));
    json_free(a), json_free(b);
    here.len = cpu.len = 0;
    CHECK(RUN(&here, "generate", dump, "--prompt", "a llama", "--max-tokens", "12", "--temperature",
              "0") == 0);
    CHECK(RUN(&cpu, "generate", dump, "--prompt", "a llama", "--max-tokens", "12", "--temperature",
              "0", "device.kind=cpu") == 0);
    CHECK(here.len == cpu.len && here.len && !memcmp(here.data, cpu.data, here.len));
    text_release(&here), text_release(&cpu);
}

TEST(ranks_share_a_gpu_by_staging_through_the_host)
{
    const char *folder = new_folder();
    CHECK(TRAIN(1, folder, "one", "training.steps=4") == 0);
    CHECK(TRAIN(2, folder, "shards", "training.steps=4") == 0);
    CHECK(TRAIN(4, folder, "parts", "training.steps=4", "parallelism.tensor_parallel_degree=2",
                "parallelism.context_parallel_degree=2") == 0);
    CHECK(TRAIN(2, folder, "stages", "training.steps=4",
                "parallelism.pipeline_parallel_degree=2") == 0);
    double loss = runs_metric(test_path(folder, "one"), "loss");
    static const char *const others[] = {"shards", "parts", "stages"};
    for (size_t i = 0; i < 3; i++)
        CHECK_NEAR(runs_metric(test_path(folder, others[i]), "loss"), loss, 1e-5);
}

TEST(each_gpu_gets_a_rank_without_mpirun)
{
    static const char *const flags[] = {"--gpus=all", "--gpus=2", "--gpus=1,0", "device.gpus=all"};
    const char *folder = new_folder();
    setenv("LLAMERO_EMULATED_GPUS", "2", 1);
    CHECK(TRAIN(1, folder, "0", "training.steps=4", "--ranks=2", "device.gpus=0,1") == 0);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const char *dump = (const char *[]){"1", "2", "3", "4"}[i];
        struct text log = {0};
        CHECK(TRAIN(1, folder, dump, "training.steps=4", flags[i]) == 0);
        CHECK_STATUS(OK, file_read(test_path(test_path(folder, dump), "log.txt"), 1 << 20, &log));
        CHECK(strstr(log.data, "2 ranks (dp_shard 2)"));
        runs_check_same_files(test_path(folder, "0/checkpoint/step-4"),
                              test_path(test_path(folder, dump), "checkpoint/step-4"),
                              ".safetensors");
        text_release(&log);
    }
    CHECK(TRAIN(1, folder, "5", "training.steps=4", "--gpus=3") == 78);
    CHECK(TRAIN(1, folder, "5", "training.steps=4", "--gpus=0,2") == 78);
    CHECK(TRAIN(1, folder, "5", "training.steps=4", "--gpus=2", "device.kind=cpu") == 78);
    unsetenv("LLAMERO_EMULATED_GPUS");
}

TEST(plan_bench_and_doctor_support_a_gpu)
{
    const char *folder = new_folder();
    struct text out = {0};
    CHECK(RUN(&out, "bench", "--megabytes", "1", "--rounds", "1", "model.dim=32",
              "model.n_layers=1", "model.n_heads=2", "model.n_kv_heads=1", "model.ffn_hidden=32",
              "model.vocab_size=64", "training.seq_len=16", "training.local_batch_size=1",
              "model.converters=[\"float8\"]") == 0);
    CHECK(strstr(out.data, "attention_backward") && strstr(out.data, "memory in use"));
    CHECK(strstr(out.data, "quantize"));
    out.len = 0;
    CHECK(RUN(&out, "plan", test_path(folder, "run.toml"), "training.seq_len=32") == 0);
    CHECK(strstr(out.data, "activations"));
    out.len = 0;
    CHECK(RUN(&out, "doctor", folder) == 0);
    CHECK(strstr(out.data, "emulated GPU 0"));
    text_release(&out);
}

static double planned_seconds(const char *folder, const char *hardware, const char *setting)
{
    struct text out = {0};
    struct json *root;
    CHECK(RUN(&out, "plan", test_path(folder, "run.toml"), "--ranks", "8", "--json",
              "training.global_batch_size=8", setting) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &root));
    const struct json *e = json_get(root, "estimate");
    CHECK(!strcmp(json_string(json_get(e, "hardware")), hardware));
    double seconds = json_number(json_get(root, "step_seconds"));
    json_free(root);
    text_release(&out);
    return seconds;
}

/* Ranks of a node are connected by NVLink unless the configuration says otherwise. */
TEST(plan_knows_the_node_of_the_gpu_that_it_measures)
{
    const char *folder = new_folder();
    setenv("LLAMERO_EMULATED_NAME", "NVIDIA H100 80GB HBM3", 1);
    double slow = planned_seconds(folder, "h100", "device.transfer_latency=1");
    double fast = planned_seconds(folder, "h100", "device.transfer_latency=1e-9");
    struct text out = {0};
    CHECK(slow > fast + 0.5);
    CHECK(RUN(&out, "plan", test_path(folder, "run.toml")) == 0);
    CHECK(strstr(out.data, "step time on h100 (per rank: a GPU of this machine):"));
    unsetenv("LLAMERO_EMULATED_NAME");
    text_release(&out);
}

TEST(a_run_on_a_gpu_without_fp8_units_warns_once_that_fp8_is_slow)
{
    const char *folder = new_folder();
    struct text log = {0};
    CHECK(TRAIN(1, folder, "fp8", "training.steps=1", IN_BF16, "model.converters=[\"float8\"]") ==
          0);
    CHECK_STATUS(OK, file_read(test_path(folder, "fp8/log.txt"), 1 << 20, &log));
    const char *warning = strstr(log.data, "FP8 makes this run slower: ");
    CHECK(warning && !strstr(warning + 1, "FP8 makes this run slower"));
    log.len = 0;
    CHECK(TRAIN(1, folder, "bf16", "training.steps=1", IN_BF16) == 0);
    CHECK_STATUS(OK, file_read(test_path(folder, "bf16/log.txt"), 1 << 20, &log));
    CHECK(!strstr(log.data, "without FP8"));
    text_release(&log);
}

/* Without FP8 units the scales of stale weights take scratch, besides a larger quantized input than
 * training has. */
TEST(a_gpu_run_in_fp8_validates_batches_that_are_larger_than_a_microbatch)
{
    const char *folder = new_folder();
    CHECK(TRAIN(1, folder, "fp8", "training.steps=2", IN_BF16, "model.converters=[\"float8\"]",
                "validation.enable=true", "validation.freq=1", "validation.steps=1",
                "validation.local_batch_size=8", "data.validation_share=0.2") == 0);
}

TEST(slurm_requests_a_gpu_for_each_rank)
{
    const char *folder = new_folder(), *config = test_path(folder, "run.toml");
    const char *all = "training.global_batch_size=-1";
    struct text out = {0};
    CHECK(RUN(&out, "slurm", config, all, "--nodes", "1", "--ranks-per-node", "2", "--time",
              "10") == 0);
    CHECK(strstr(out.data, "#SBATCH --gpus-per-node=2\n"));
    CHECK(RUN(&out, "slurm", config, all, "--nodes", "2", "--time", "10", "--gpus-per-node=8") ==
          0);
    CHECK(strstr(out.data, "#SBATCH --gpus-per-node=8\n"));
    CHECK(RUN(&out, "slurm", config, all, "--nodes", "2", "--time", "10", "device.kind=cpu") == 0);
    CHECK(!strstr(out.data, "gpus-per-node"));
    CHECK(RUN(&out, "slurm", config, all, "--nodes", "2", "--time", "10", "device.kind=hip") == 78);
    text_release(&out);
}

TEST(doctor_lists_an_emulated_gpu_and_what_it_lacks)
{
    struct text out = {0};
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    CHECK(!RUN(&out, "doctor"));
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK(strstr(out.data, "emulated GPU 0") && strstr(out.data, "; CUDA_VISIBLE_DEVICES=\"0\""));
    CHECK(strstr(out.data, "built without NCCL") && strstr(out.data, "staged"));
    CHECK(!strstr(out.data, "gpu attention")); /* no library to check */
    text_release(&out);
}
