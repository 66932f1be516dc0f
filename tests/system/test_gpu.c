/* test_gpu.c -- compares the emulated GPU backend with the CPU, with warps of 32 and waves of 64.
 */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "machine/machine.h"
#include "system/device_check.h"
#include "test.h"

struct emulator {
    const char *name;
    enum status (*open)(struct queue **out, int device);
    void (*close)(struct queue *queue);
    const struct ops *ops;
};
static const struct emulator emulators[] = {
    {"waves of 32", gpu_emu32_open, gpu_emu32_close, &gpu_emu32_ops},
    {"waves of 64", gpu_emu64_open, gpu_emu64_close, &gpu_emu64_ops},
};

static void with_each_emulator(void (*check)(struct device_check *c))
{
    for (size_t i = 0; i < (TEST_SLOWED ? 1 : sizeof emulators / sizeof *emulators); i++) {
        struct device_check c = {0};
        struct machine *m[] = {&c.cpu, &c.device};
        for (int k = 0; k < 2; k++) CHECK_STATUS(OK, machine_alone(m[k]));
        c.cpu.ops = &ops_cpu_reference;
        CHECK_STATUS(OK, cpu_queue_open(&c.cpu.queue, 1, 0));
        c.device.ops = emulators[i].ops;
        CHECK_STATUS(OK, emulators[i].open(&c.device.queue, 0));
        check(&c);
        print_message("%s: %d comparisons, worst %.1e in f32, %.1e in bf16\n", emulators[i].name,
                      c.count, c.worst[F32], c.worst[BF16]);
        CHECK(c.count && !c.failed);
        emulators[i].close(c.device.queue);
        cpu_queue_close(c.cpu.queue);
        for (int k = 0; k < 2; k++) groups_close(&m[k]->groups);
    }
}

TEST(emulated_gpu_matches_the_cpu_at_odd_sizes) { with_each_emulator(device_check_odd); }

#define FLOAT8 "model.converters=[\"float8\"]"
#define Z_LOSS "training.z_loss=0.01"
#define BIASES "model.attention_bias=all", "model.mlp_bias=true"
#define MULTIPLIERS                                                                                \
    "model.embedding_multiplier=3", "model.residual_multiplier=0.5", "model.logits_scaling=2"
#define NO_ROPE "model.no_rope_layer_interval=2", "model.attn_mask_type=block_causal"

enum { MAX_SETTINGS = 4 };
struct training {
    double tolerance;
    const char *settings[MAX_SETTINGS];
};

static bool has_setting(const struct training *t, const char *setting)
{
    for (int i = 0; i < MAX_SETTINGS && t->settings[i]; i++)
        if (!strcmp(t->settings[i], setting)) return true;
    return false;
}

/* Those with the setting `only`; NULL: all. */
static void trainings_with(struct device_check *c, const char *only)
{
    static const struct training runs[] = {
        {1e-5, {"training.mixed_precision_param=float32", "model.tie_embeddings=true"}},
        {2e-2, {"training.mixed_precision_param=bfloat16", "activation_checkpoint.mode=full"}},
        {1e-5, {"training.mixed_precision_param=float32", "model.qk_norm=true", Z_LOSS}},
        {2e-2, {"training.mixed_precision_param=bfloat16", "model.qk_norm=true", Z_LOSS}},
        {1e-5, {"training.mixed_precision_param=float32", "model.post_norm=true"}},
        {2e-2, {"training.mixed_precision_param=bfloat16", "model.post_norm=true"}},
        {1e-5, {"training.mixed_precision_param=float32", "model.sliding_window=5"}},
        {1e-5, {"training.mixed_precision_param=float32", BIASES}},
        {1e-5, {"training.mixed_precision_param=float32", MULTIPLIERS}},
        {2e-2, {"training.mixed_precision_param=bfloat16", MULTIPLIERS}},
        {1e-5, {"training.mixed_precision_param=float32", NO_ROPE}},
        {2e-2, {"training.mixed_precision_param=bfloat16", BIASES}},
        {2e-2, {"training.mixed_precision_param=bfloat16", "model.attn_mask_type=block_causal"}},
        {5e-2, {"training.mixed_precision_param=bfloat16", BIASES, FLOAT8}},
        {5e-2,
         {"training.mixed_precision_param=bfloat16", "model.residual_multiplier=0.5", FLOAT8}},
        {5e-2, {"training.mixed_precision_param=bfloat16", FLOAT8}},
        {5e-2, {"training.mixed_precision_param=bfloat16", FLOAT8, "float8.recipe_name=delayed"}},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (only && !has_setting(&runs[i], only)) continue;
        const char *settings[16] = {"model.dim=32",
                                    "model.n_layers=2",
                                    "model.n_heads=4",
                                    "model.n_kv_heads=2",
                                    "model.ffn_hidden=48",
                                    "model.vocab_size=96",
                                    "training.local_batch_size=2",
                                    "training.seq_len=24",
                                    "optimizer.lr=1e-2",
                                    "lr_scheduler.warmup_steps=2",
                                    "training.dataset_path=none"};
        struct config config = {0};
        int n = 0;
        while (settings[n]) n++;
        for (int k = 0; k < MAX_SETTINGS && runs[i].settings[k]; k++)
            settings[n++] = runs[i].settings[k];
        CHECK_STATUS(OK, config_load(&config, NULL, settings, n));
        CHECK_STATUS(OK, device_check_training(c, &config, 4, runs[i].tolerance));
        config_release(&config);
    }
}

static void trainings(struct device_check *c) { trainings_with(c, NULL); }

TEST(emulated_gpu_matches_the_cpu_in_losses_and_gradients) { with_each_emulator(trainings); }

static void trainings_in_fp8(struct device_check *c)
{
    ((struct gpu_queue *)c->device.queue)->native_fp8 = true;
    trainings_with(c, FLOAT8);
}

TEST(emulated_gpu_matches_the_cpu_in_fp8) { with_each_emulator(trainings_in_fp8); }

static void step(struct device_check *c)
{
    static const char *const settings[] = {"model.dim=64",
                                           "model.n_layers=1",
                                           "model.n_heads=4",
                                           "model.n_kv_heads=2",
                                           "model.ffn_hidden=96",
                                           "model.vocab_size=300",
                                           "training.seq_len=48",
                                           "training.local_batch_size=1",
                                           "training.dataset_path=none"};
    struct config config = {0};
    CHECK_STATUS(OK, config_load(&config, NULL, settings, sizeof settings / sizeof *settings));
    CHECK_STATUS(OK, device_check_step(c, &config));
    config_release(&config);
}

TEST(emulated_gpu_matches_the_cpu_in_each_operation_of_a_step) { with_each_emulator(step); }
