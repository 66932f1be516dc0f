// SPDX-License-Identifier: Apache-2.0
#include "perf/described_gpu.h"
#include "test.h"

#include "backends/gpu/gpu.h"
#include "parallel/groups.h"
#include "train/trainer.h"

static struct memory_plan plan_on_gpu(const char *const *settings, int count, int ranks)
{
    struct config c;
    struct model_shape shape;
    struct described_gpu gpu;
    struct machine m = {0};
    struct memory_plan plan;
    CHECK_STATUS(OK, config_load(&c, NULL, settings, count));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 0));
    CHECK_STATUS(OK, mesh_resolve(&m.mesh, &c.parallelism, 0, ranks));
    described_gpu_open(&gpu, &c.device, &m);
    groups_init_simulated(&m.groups, &m.mesh);
    CHECK_STATUS(OK, trainer_plan(&c, &shape, &m, &plan));
    described_gpu_add_context(&plan);
    double node_ranks = device_config_hardware(&c.device).node_ranks;
    described_gpu_add_communicators(&c, &shape, &m, node_ranks, &plan);
    described_gpu_close(&gpu);
    config_release(&c);
    return plan;
}

#define MODEL                                                                                      \
    "model.dim=1024", "model.n_heads=8", "model.n_kv_heads=8", "model.n_layers=2",                 \
        "model.vocab_size=1000", "training.dataset_path=mock", "training.seq_len=4096",            \
        "training.local_batch_size=1"
enum { MODEL_COUNT = 8 };

TEST(described_gpu_keeps_device_and_host_memory_apart)
{
    const char *const sync[] = {MODEL, "device.hardware=h100"};
    const char *const async[] = {MODEL, "device.hardware=h100", "checkpoint.enable=true",
                                 "checkpoint.async_mode=async"};
    struct memory_plan p = plan_on_gpu(sync, MODEL_COUNT + 1, 1),
                       q = plan_on_gpu(async, MODEL_COUNT + 3, 1);
    CHECK(p.host[MEMORY_batch] > 0 && p.host[MEMORY_weights] == 0 && p.bytes[MEMORY_batch] > 0);
    CHECK(memory_plan_total(&p) == memory_plan_total(&q));
    CHECK(!q.bytes[MEMORY_checkpoint] && q.host[MEMORY_checkpoint] >= 3 * p.bytes[MEMORY_weights]);
    memory_plan_merge_host(&q);
    CHECK(!memory_plan_host_total(&q) && q.bytes[MEMORY_checkpoint]);
}

/* Bytes per parameter that an asynchronous save copies. */
static double staged_bytes(const char *weights, const char *moments)
{
    const char *const settings[] = {MODEL,
                                    "device.hardware=h100",
                                    "checkpoint.enable=true",
                                    "checkpoint.async_mode=async",
                                    weights,
                                    moments};
    const char *const plain[] = {MODEL, "device.hardware=h100"};
    struct memory_plan p = plan_on_gpu(settings, MODEL_COUNT + 5, 1);
    double n = (double)plan_on_gpu(plain, MODEL_COUNT + 1, 1).bytes[MEMORY_weights] / 4;
    return (double)p.host[MEMORY_checkpoint] / n;
}

TEST(described_gpu_counts_the_copy_of_the_state_as_it_is_stored)
{
#define WEIGHTS "optimizer.master_weights="
#define MOMENTS "optimizer.state_dtype="
    double whole = staged_bytes(WEIGHTS "float32", MOMENTS "float32");
    double half = staged_bytes(WEIGHTS "split", MOMENTS "bfloat16");
    double quantized = staged_bytes(WEIGHTS "split", MOMENTS "int8");
    CHECK(whole > 11.99 && whole < 12.01);
    CHECK(half > 7.99 && half < 8.01);
    CHECK(quantized > 6.02 && quantized < 6.05);
}

/* With split weights: 2 + 8 bytes per parameter. */
TEST(described_gpu_counts_offloaded_state_and_activations_as_host_memory)
{
#define OFFLOADED(state, activations)                                                              \
    MODEL, "model.n_layers=4", "device.hardware=h100", "optimizer.master_weights=split",           \
        "activation_checkpoint.mode=full", "optimizer.offload=" state,                             \
        "activation_checkpoint.offload=" activations
    const char *const device[] = {OFFLOADED("false", "false")};
    const char *const host[] = {OFFLOADED("true", "true")};
    struct memory_plan p = plan_on_gpu(device, MODEL_COUNT + 6, 1);
    struct memory_plan q = plan_on_gpu(host, MODEL_COUNT + 6, 1);
    CHECK(!p.host[MEMORY_optimizer] && !p.host[MEMORY_activations]);
    CHECK(!q.bytes[MEMORY_weights] && q.host[MEMORY_weights] == p.bytes[MEMORY_weights]);
    CHECK(!q.bytes[MEMORY_optimizer] && q.host[MEMORY_optimizer] == p.bytes[MEMORY_optimizer]);
    CHECK(q.bytes[MEMORY_gathered] > p.bytes[MEMORY_gathered]);
    size_t input = (size_t)4096 * 1024 * 2; /* of the second block; the last two stay */
    CHECK(q.host[MEMORY_activations] == input);
    CHECK(q.bytes[MEMORY_activations] + input == p.bytes[MEMORY_activations]); /* 2 buffers for 3 */
}

/* 8 heads of T x T bf16 for dS, and delta. */
TEST(described_gpu_reserves_the_scratch_of_its_vendors_libraries)
{
    const char *const nvidia[] = {MODEL, "device.hardware=h100"};
    const char *const amd[] = {MODEL, "device.hardware=mi300x"};
    const char *const documents[] = {MODEL, "device.hardware=h100",
                                     "model.attn_mask_type=block_causal"};
    size_t scratch = plan_on_gpu(nvidia, MODEL_COUNT + 1, 1).bytes[MEMORY_scratch];
    CHECK(scratch == (size_t)8 * 4096 * 4096 * 2 + 8 * 4096 * sizeof(float));
    size_t own = plan_on_gpu(amd, MODEL_COUNT + 1, 1).bytes[MEMORY_scratch];
    CHECK(own > 80 << 20 && own < 88 << 20); /* hipBLASLt's is the largest */
    const char *const fp8[] = {MODEL, "device.hardware=mi300x", "model.converters=[\"float8\"]"};
    size_t scaled = plan_on_gpu(fp8, MODEL_COUNT + 2, 1).bytes[MEMORY_scratch];
    const char *const native[] = {MODEL, "device.hardware=mi300x", "device.fp8_speedup=2",
                                  "model.converters=[\"float8\"]"};
    own = plan_on_gpu(native, MODEL_COUNT + 3, 1).bytes[MEMORY_scratch];
    CHECK(scaled > own + (32 << 20)); /* a product, in float32 */
    own = plan_on_gpu(documents, MODEL_COUNT + 2, 1).bytes[MEMORY_scratch];
    CHECK(own > 32 << 20 && own < 40 << 20); /* cuBLASLt's is the largest */
}

TEST(described_gpu_counts_its_context_and_a_communicator_per_group)
{
    const char *const one[] = {MODEL, "device.hardware=h100"};
    const char *const tp[] = {MODEL, "device.hardware=h100",
                              "parallelism.tensor_parallel_degree=2"};
    const char *const cp[] = {MODEL, "device.hardware=h100",
                              "parallelism.context_parallel_degree=2"};
    const char *const pp[] = {MODEL, "device.hardware=h100",
                              "parallelism.pipeline_parallel_degree=2"};
    const char *const staged[] = {MODEL, "device.hardware=h100", "device.comm=staged"};
    struct memory_plan alone = plan_on_gpu(one, MODEL_COUNT + 1, 1);
    struct memory_plan both = plan_on_gpu(tp, MODEL_COUNT + 2, 4);
    CHECK(alone.bytes[MEMORY_context] >= 512 << 20 && !alone.bytes[MEMORY_communication]);
    size_t each = plan_on_gpu(one, MODEL_COUNT + 1, 2).bytes[MEMORY_communication];
    CHECK(each > 0 && both.bytes[MEMORY_communication] == 2 * each);
    size_t ring = plan_on_gpu(cp, MODEL_COUNT + 2, 2).bytes[MEMORY_communication] - each;
    const char *const wide[] = {MODEL, "device.hardware=h100",
                                "parallelism.context_parallel_degree=8"};
    size_t largest = plan_on_gpu(wide, MODEL_COUNT + 2, 8).bytes[MEMORY_communication] - each;
    CHECK(largest == 4 * ring);
    CHECK(ring > 0 && ring == plan_on_gpu(pp, MODEL_COUNT + 2, 2).bytes[MEMORY_communication]);
    CHECK(!plan_on_gpu(staged, MODEL_COUNT + 2, 2).bytes[MEMORY_communication]);
}

static size_t communication(const char *key, const char *another, int ranks)
{
    const char *const settings[] = {MODEL, "device.hardware=h100", key, another};
    return plan_on_gpu(settings, MODEL_COUNT + 3, ranks).bytes[MEMORY_communication];
}

TEST(described_gpu_counts_communicators_of_replicated_parameters)
{
    const char *tied = "model.tie_embeddings=true", *untied = "model.tie_embeddings=false",
               *pp = "parallelism.pipeline_parallel_degree=2",
               *tp = "parallelism.tensor_parallel_degree=4";
    size_t one = (size_t)256 << 20;
    CHECK(communication(tied, pp, 2) == communication(untied, pp, 2) + one);
    CHECK(communication("model.n_kv_heads=2", tp, 4) ==
          communication("model.n_kv_heads=4", tp, 4) + one);
    size_t rccl = communication("device.hardware=mi250x", tp, 4);
    CHECK(rccl == 2 * communication("device.hardware=h100", tp, 4) && rccl > 0);
}

/* All-to-alls connect each pair of ranks of the group: 7 peers on the node, 8 on another. */
TEST(described_gpu_counts_the_peers_of_muons_all_to_alls)
{
    const char *const adamw[] = {MODEL, "device.hardware=h100"};
    const char *const muon[] = {MODEL, "device.hardware=h100", "optimizer.name=Muon"};
    size_t without = plan_on_gpu(adamw, MODEL_COUNT + 1, 16).bytes[MEMORY_communication];
    size_t with = plan_on_gpu(muon, MODEL_COUNT + 2, 16).bytes[MEMORY_communication];
    CHECK(with - without == (7 * 64 + 8 * 16) << 20);
    CHECK(!plan_on_gpu(muon, MODEL_COUNT + 2, 1).bytes[MEMORY_communication]);
}

/* Otherwise the sizes of a step would differ. */
TEST(described_gpu_has_the_settings_of_the_gpu_backends_table)
{
    struct described_gpu gpu;
    struct machine m = {0};
    const struct device_config c = {.hardware = HARDWARE_h100};
    described_gpu_open(&gpu, &c, &m);
    CHECK(m.ops->computes_amax == gpu_emu32_ops.computes_amax);
    CHECK(m.ops->logit_rows == gpu_emu32_ops.logit_rows);
    CHECK(!m.ops->attention_can_pack == !gpu_emu32_ops.attention_can_pack);
    described_gpu_close(&gpu);
}
