// SPDX-License-Identifier: Apache-2.0
#include "perf/step_simulator.h"
#include "test.h"

static const struct hardware machine = {.bf16_flops = 1e12,
                                        .f32_flops = 1e11,
                                        .float8 = 2,
                                        .efficiency = 1,
                                        .memory_bandwidth = 1e15,
                                        .node_ranks = 4,
                                        .node_bandwidth = 1e9,
                                        .network_bandwidth = 1e8,
                                        .host_bandwidth = 1e9};

static struct estimate estimate_on(const struct hardware *hardware, const char *const *settings,
                                   int num_settings, int ranks)
{
    struct config c;
    struct model_shape shape;
    struct mesh mesh;
    struct estimate e;
    CHECK_STATUS(OK, config_load(&c, NULL, settings, num_settings));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 0));
    CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, ranks));
    CHECK_STATUS(OK, step_simulator_estimate(&e, &c, &shape, &mesh, hardware));
    config_release(&c);
    return e;
}
static struct estimate estimate_of(const char *const *settings, int num_settings, int ranks)
{
    return estimate_on(&machine, settings, num_settings, ranks);
}

#define TINY                                                                                       \
    "model.dim=64", "model.n_layers=3", "model.n_heads=4", "model.n_kv_heads=2",                   \
        "model.ffn_hidden=128", "model.vocab_size=256", "training.seq_len=32",                     \
        "training.local_batch_size=2", "activation_checkpoint.mode=none"
enum { TINY_COUNT = 9 };

TEST(step_simulator_counts_every_gemm_of_every_microbatch)
{
    const char *const one[] = {TINY, "training.global_batch_size=2"};
    const char *const three[] = {TINY, "training.global_batch_size=6"};
    struct estimate e = estimate_of(one, TINY_COUNT + 1, 1),
                    more = estimate_of(three, TINY_COUNT + 1, 1);
    double tokens = 2 * 32, D = 64, block = D * (64 * 2 + 32 * 2) + 3 * D * 128;
    double attention = 7.0 * 3 * D * 32 * (1 + 1.0 / 32), head = D * 256;
    CHECK_NEAR(e.matmul_s * 1e12 / (tokens * (6 * (3 * block + head) + attention)), 1, 0.05);
    CHECK_NEAR(more.matmul_s / e.matmul_s, 3, 1e-9);
    CHECK(e.exposed_s[GROUP_shard] == 0 && e.bubble_s == 0);
    /* A step has one update, and does not include the casts with which a run starts. */
    CHECK_NEAR(more.update_s / e.update_s, 1, 1e-9);
    const char *const f32[] = {TINY, "training.mixed_precision_param=float32"};
    struct estimate slow = estimate_of(f32, TINY_COUNT + 1, 1);
    CHECK_NEAR(slow.matmul_s / e.matmul_s, 10, 1e-9);
}

/* Of 4096 tokens, in chunks of 256. */
TEST(step_simulator_counts_the_head_of_an_average_number_of_labels)
{
    static const struct {
        const char *objective, *share;
        double tokens;
    } rows[] = {{"masked", "objective.mask_probability=0.3", 1280},
                {"masked", "objective.mask_probability=0.01", 512}, /* at least two are sized */
                {"diffusion", "objective.mask_probability=0.3", 2048}};
    const char *settings[TINY_COUNT + 3] = {TINY, "training.seq_len=2048", "objective.name=masked",
                                            "objective.mask_probability=1"};
    double all = estimate_of(settings, TINY_COUNT + 3, 1).matmul_s;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "objective.name=%s", rows[i].objective);
        settings[TINY_COUNT + 1] = name, settings[TINY_COUNT + 2] = rows[i].share;
        double some = estimate_of(settings, TINY_COUNT + 3, 1).matmul_s;
        CHECK_NEAR((all - some) * 1e12 / ((4096 - rows[i].tokens) * 6 * 64 * 256), 1, 1e-6);
    }
}

/* Newton-Schulz: 5 iterations of two GEMMs of n k^2 and one of k^3, k the shorter side, at 1e12, or
 * in f32 at 1e11. */
TEST(step_simulator_counts_the_gemms_of_muon)
{
    const char *const settings[] = {TINY, "optimizer.name=Muon"};
    struct estimate adamw = estimate_of(settings, TINY_COUNT, 1);
    struct estimate muon = estimate_of(settings, TINY_COUNT + 1, 1);
    double squares = 2 * (3.0 * 64 * 64 * 64),
           small = 2 * (2.0 * 64 + 32) * 32 * 32; /* q, o; k, v */
    double ffn = 3 * (2.0 * 128 + 64) * 64 * 64;
    double flops = 3 * 5 * 2 * (squares + small + ffn);
    CHECK_NEAR((muon.update_s - adamw.update_s) / (flops / 1e12), 1, 0.01);
    struct estimate shared = estimate_of(settings, TINY_COUNT + 1, 2);
    CHECK(isfinite(shared.update_s) && muon.matmul_s == adamw.matmul_s);
    const char *const f32[] = {TINY, "optimizer.name=Muon",
                               "training.mixed_precision_param=float32"};
    muon = estimate_of(f32, TINY_COUNT + 2, 1);
    CHECK_NEAR((muon.update_s - adamw.update_s) / (flops / 1e11), 1, 0.01);
}

/* Bytes of an iteration in float32, of a matrix of mn elements and its Gram matrix of kk: three
 * GEMMs (2 mn + kk, 3 kk, 2 mn + kk), the polynomial (3 kk), and the copy of the result (2 mn). */
TEST(step_simulator_counts_the_copies_of_muon_in_float32)
{
    struct hardware fast = machine;
    fast.f32_flops = 1e18, fast.memory_bandwidth = 1e9;
#define MUON_F32 TINY, "optimizer.name=Muon", "training.mixed_precision_param=float32"
    const char *const one[] = {MUON_F32, "optimizer.ns_steps=1"};
    const char *const two[] = {MUON_F32, "optimizer.ns_steps=2"};
#undef MUON_F32
    double mn = 2 * (64 * 64 + 32 * 64) + 3 * 128 * 64, kk = 2 * (64 * 64 + 32 * 32) + 3 * 64 * 64;
    double more = estimate_on(&fast, two, TINY_COUNT + 3, 1).update_s -
                  estimate_on(&fast, one, TINY_COUNT + 3, 1).update_s;
    double bytes = more * fast.memory_bandwidth * SIM_CLOCK_MEMORY_EFFICIENCY;
    CHECK_NEAR(bytes / (3 * sizeof(float) * (6 * mn + 8 * kk)), 1, 1e-6);
}

TEST(step_simulator_overlaps_communication_with_computation)
{
    const char *const plain[] = {TINY}, *const keep[] = {
                                            TINY, "parallelism.fsdp_reshard_after_forward=never",
                                            "training.global_batch_size=48"};
    const char *const give[] = {TINY, "parallelism.fsdp_reshard_after_forward=always",
                                "training.global_batch_size=48"};
    struct estimate near = estimate_of(plain, TINY_COUNT, 4),
                    far = estimate_of(plain, TINY_COUNT, 8);
    CHECK(near.exposed_s[GROUP_shard] > 0 && near.limit == RESOURCE_node_links);
    CHECK(far.exposed_s[GROUP_shard] > near.exposed_s[GROUP_shard]);
    CHECK(far.limit == RESOURCE_network);
    /* Weights that are not resharded need no second all-gather. */
    struct estimate kept = estimate_of(keep, TINY_COUNT + 2, 8),
                    given = estimate_of(give, TINY_COUNT + 2, 8);
    CHECK(kept.exposed_s[GROUP_shard] < given.exposed_s[GROUP_shard]);
    const char *const cut[] = {TINY, "parallelism.tensor_parallel_degree=4"};
    struct estimate tp = estimate_of(cut, TINY_COUNT + 1, 4);
    CHECK(tp.exposed_s[GROUP_tp] > 0 && tp.exposed_s[GROUP_shard] == 0);
}

/* Attention and the head stay bfloat16; quantization is memory-bound. */
TEST(step_simulator_speeds_up_fp8_gemms)
{
    const char *const plain[] = {TINY, "training.global_batch_size=2"};
    const char *const eight[] = {TINY, "training.global_batch_size=2",
                                 "model.converters=[\"float8\"]"};
    struct estimate e = estimate_of(plain, TINY_COUNT + 1, 1),
                    fast = estimate_of(eight, TINY_COUNT + 2, 1);
    double tokens = 2 * 32, D = 64, block = D * (64 * 2 + 32 * 2) + 3 * D * 128;
    double saved = tokens * 6 * 3 * block / 2;
    CHECK_NEAR((e.matmul_s - fast.matmul_s) * 1e12 / saved, 1, 0.01);
    CHECK(fast.memory_s > e.memory_s);
}

/* On an A100, cuBLASLt reads the scales. */
TEST(step_simulator_scales_fp8_products_after_hipblaslt)
{
    const char *const eight[] = {TINY, "training.global_batch_size=2",
                                 "model.converters=[\"float8\"]"};
    struct hardware amd = machine, nvidia = machine;
    amd.float8 = nvidia.float8 = 1, amd.vendor = VENDOR_amd, nvidia.vendor = VENDOR_nvidia;
    struct estimate e = estimate_on(&nvidia, eight, TINY_COUNT + 2, 1),
                    scaled = estimate_on(&amd, eight, TINY_COUNT + 2, 1);
    double tokens = 2 * 32, outputs = 128 + 64 + 256 + 64, inputs = 3 * 64 + 128;
    double weights = 64 * (128 + 64 + 256 + 128);
    double bytes = 3 * (tokens * (outputs + inputs) * (4 + 2) + weights * (4 + 4));
    double added = (scaled.memory_s - e.memory_s) * 1e15 * SIM_CLOCK_MEMORY_EFFICIENCY;
    CHECK_NEAR(scaled.matmul_s / e.matmul_s, 1, 1e-9);
    CHECK(added >= 0.999 * bytes && added < 1.5 * bytes); /* more where a GEMM accumulates */
    amd.float8 = 2;
    CHECK(estimate_on(&amd, eight, TINY_COUNT + 2, 1).memory_s < scaled.memory_s);
}

/* A rank's clock with every microbatch simulated, versus the estimate, which simulates a few. */
TEST(step_simulator_extrapolates_from_few_microbatches)
{
    static const char *const kinds[] = {"parallelism.fsdp_reshard_after_forward=always",
                                        "parallelism.fsdp_reshard_after_forward=never",
                                        "parallelism.fsdp_shard_gradients=false"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *const settings[] = {TINY, "training.global_batch_size=160", kinds[i]};
        struct config c;
        struct model_shape shape;
        struct sim_clock clock = {.hardware = machine};
        struct memory_plan memory;
        CHECK_STATUS(OK, config_load(&c, NULL, settings, TINY_COUNT + 2));
        c.validation.enable = false;
        CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 0));
        struct rank_simulation s = {
            .config = &c, .shape = &shape, .clocks = &clock, .num_clocks = 1};
        CHECK_STATUS(OK, mesh_resolve(&s.mesh, &c.parallelism, 0, 4));
        CHECK_STATUS(OK, step_simulator_run_rank(&s, &memory));
        struct estimate e = estimate_of(settings, TINY_COUNT + 2, 4);
        CHECK_NEAR(e.step_s / clock.now, 1, 1e-6);
        CHECK_NEAR(e.matmul_s / clock.matmul_s, 1, 1e-6);
        CHECK_NEAR(e.exposed_s[GROUP_shard] / clock.exposed_s[GROUP_shard], 1, 1e-5);
        sim_clock_release(&clock);
        config_release(&c);
    }
}

TEST(step_simulator_finds_the_same_times_with_one_clock_and_with_all)
{
    const char *const settings[] = {TINY, "model.n_layers=8",
                                    "parallelism.pipeline_parallel_degree=4",
                                    "parallelism.pipeline_parallel_microbatch_size=1"};
    struct config c;
    struct model_shape shape;
    struct mesh mesh;
    struct estimate all = estimate_of(settings, TINY_COUNT + 3, 8), one;
    CHECK_STATUS(OK, config_load(&c, NULL, settings, TINY_COUNT + 3));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 0));
    CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, 8));
    CHECK_STATUS(OK, step_simulator_time(&one, &c, &shape, &mesh, &machine));
    CHECK(one.step_s == all.step_s && one.bubble_s == all.bubble_s && one.bubble_s > 0);
    config_release(&c);
}

/* Over a link of 1e9 bytes/s, of which 0.8 are reached. */
TEST(step_simulator_adds_the_copies_of_offloaded_state_and_activations)
{
    const char *const device[] = {TINY}, *const state[] = {TINY, "optimizer.offload=true"};
    const char *const activations[] = {TINY, "activation_checkpoint.offload=true"};
    struct estimate e = estimate_of(device, TINY_COUNT, 1);
    struct estimate s = estimate_of(state, TINY_COUNT + 1, 1);
    struct estimate a = estimate_of(activations, TINY_COUNT + 1, 1);
    double block = 64 * (64 * 2 + 32 * 2) + 3 * 64 * 128 + 2 * 64, head = 64 * 256;
    double each_way = 12 * (3 * block + 2 * head + 64) / 0.8e9;
    /* All of it in one direction, and the last chunk of at least eight in the other. */
    CHECK(s.update_s > each_way && s.update_s < each_way * (1 + 2.0 / 8) + e.update_s);
    CHECK(s.host_s == 0 && s.matmul_s == e.matmul_s);
    CHECK(e.host_s == 0 && a.host_s > 0);
    CHECK_NEAR(a.update_s / e.update_s, 1, 1e-6);
    CHECK_NEAR(a.step_s - e.step_s, a.host_s, 1e-9);
}
