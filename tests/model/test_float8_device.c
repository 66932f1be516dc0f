// SPDX-License-Identifier: Apache-2.0
#include "model/float8_device.h"
#include "test.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "base/rng.h"
#include "comm/ranks.h"
#include "machine/machine.h"
#include "ops/fused_quantize.h"
#include "system/device_runs.h"
#include "system/layouts.h"
#include "train/trainer.h"

enum { STEPS = 3, SETTINGS = 20 };

struct emulated_run {
    const char *const *settings;
    int num_settings, steps;
    bool native;
    double loss[STEPS], norm[STEPS]; /* of rank 0, as what follows */
    float *scales;
    size_t count;
};

static void fill_batch(struct batch *b, int V, int step)
{
    size_t tokens = (size_t)b->B * (size_t)b->T;
    for (size_t n = 0; n < tokens; n++) {
        b->ids_BT[n] = (int32_t)rng_below((uint64_t)V, 1, RNG_TEST, (uint64_t)step, n);
        b->labels_BT[n] = (b->ids_BT[n] * 7 + 3) % V;
        b->start_BT[n] = 0, b->end_BT[n] = b->T;
    }
    b->valid = (int64_t)tokens;
}

static enum status run_steps(struct trainer *t, struct emulated_run *r)
{
    bool first = t->machine.world.rank == 0;
    RANK_CHECK((t->float8.device.queue != NULL) == r->native);
    TRY(trainer_init_weights(t, 1));
    TRY(trainer_sync_weights(t));
    for (int step = 0; step < r->steps; step++) {
        struct step_result s;
        fill_batch(&t->batch, t->shape.V, step);
        TRY(trainer_train_batch(t, &s));
        RANK_CHECK(!s.skipped);
        if (first) r->loss[step] = s.loss, r->norm[step] = s.grad_norm;
    }
    if (!first) return STATUS_OK;
    r->count = float8_num_amax(&t->float8);
    r->scales = heap((r->count + 1) * sizeof *r->scales);
    memcpy(r->scales, t->float8.scales, r->count * sizeof *r->scales);
    return STATUS_OK;
}

/* Kernels read scales in device memory: each block of a launch does. */
static enum status check_and_quantize(const struct fused_quantize *a,
                                      const struct fused_quantize_io *io, struct queue *queue)
{
    RANK_CHECK(!io->scale || emulator_is_device_memory(io->scale));
    RANK_CHECK(!io->find.delayed || emulator_is_device_memory(io->find.delayed));
    return gpu_emu32_ops.fused_quantize(a, io, queue);
}

static enum status train_rank(const struct comm *world, void *run)
{
    struct emulated_run *r = run;
    struct config config = {0};
    struct model_shape shape;
    struct ops ops = gpu_emu32_ops;
    struct machine m = {.ops = &ops, .world = *world};
    struct trainer t = {0};
    enum status st = STATUS_OK;
    ops.fused_quantize = check_and_quantize;
    TRY(config_load(&config, NULL, r->settings, r->num_settings));
    TRY_OUT(mesh_resolve(&m.mesh, &config.parallelism, world->rank, world->size));
    TRY_OUT(groups_open(&m.groups, &m.mesh, world));
    TRY_OUT(gpu_emu32_open(&m.queue, 0));
    ((struct gpu_queue *)m.queue)->native_fp8 = r->native;
    TRY_OUT(groups_wrap_device(&m.groups, device_run_over_staged, m.queue));
    TRY_OUT(model_shape_resolve(&shape, &config.model, 0));
    TRY_OUT(trainer_open(&t, &config, &shape, &m));
    TRY_OUT(run_steps(&t, r));
out:
    trainer_close(&t);
    groups_close(&m.groups);
    gpu_emu32_close(m.queue);
    config_release(&config);
    return st;
}

/* Delayed scales are maxima over several steps only from the third step on. */
static int count_steps(const char *const *settings, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(settings[i], "float8.recipe_name=delayed")) return STEPS;
    return TEST_SLOWED ? 2 : STEPS;
}

/* Trains on emulated GPUs, with or without native FP8; two microbatches a step. */
static void train(struct emulated_run *r, int ranks, bool native, const char *const *settings,
                  int count)
{
    *r = (struct emulated_run){.settings = settings,
                               .num_settings = count,
                               .steps = count_steps(settings, count),
                               .native = native};
    emulator_set_relaxed(true);
    CHECK_STATUS(OK, ranks_run(ranks, train_rank, r));
    emulator_set_relaxed(false);
}

/* Quantizing in norms and SwiGLU, keeping what forward quantized, and recomputing it with the saved
 * scale are the same as storing everything in the model's dtype; so are amaxes of tensor-parallel
 * ranks whose maximum the kernel that quantizes finds. */
TEST(native_fp8_changes_no_bit)
{
    static const struct {
        int ranks;
        const char *settings[4];
    } variants[] = {
        {1, {"float8.recipe_name=tensorwise", "activation_checkpoint.mode=none"}},
        {1,
         {"float8.recipe_name=tensorwise", "activation_checkpoint.mode=selective",
          "activation_checkpoint.selective_ac_option=op"}},
        {1,
         {"float8.recipe_name=tensorwise", "activation_checkpoint.mode=full",
          "training.mixed_precision_param=float32"}},
        {1, {"float8.recipe_name=delayed", "activation_checkpoint.mode=none"}},
        {1,
         {"float8.recipe_name=delayed", "activation_checkpoint.mode=full",
          "float8.force_recompute_fp8_weight_in_bwd=true"}},
        {1, {"float8.recipe_name=delayed", "float8.filter_fqns=[\"layers.1.feed_forward\"]"}},
        {2, {TP(2), "activation_checkpoint.mode=none"}},
        {2,
         {TP(2), "float8.recipe_name=delayed", "activation_checkpoint.mode=full",
          "model.mlp_bias=true"}},
        {2, {TP(2), "float8.filter_fqns=[\"layers.1.feed_forward\"]", "model.post_norm=true"}},
        {2, {TP(2), "model.residual_multiplier=0.5"}},
        {4, {TP(4), "activation_checkpoint.selective_ac_option=op"}},
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += TEST_SLOWED ? 2 : 1) {
        const char *settings[SETTINGS] = {"model.dim=32",
                                          "model.n_layers=2",
                                          "model.n_heads=4",
                                          "model.n_kv_heads=2",
                                          "model.head_dim=16",
                                          "model.ffn_hidden=48",
                                          "model.vocab_size=96",
                                          "training.local_batch_size=1",
                                          "training.global_batch_size=2",
                                          "training.seq_len=24",
                                          "training.mixed_precision_param=bfloat16",
                                          "optimizer.lr=1e-2",
                                          "lr_scheduler.warmup_steps=0",
                                          "training.dataset_path=none",
                                          "model.converters=[\"float8\"]"};
        struct emulated_run native, other;
        int count = 0;
        while (settings[count]) count++;
        for (int k = 0; k < 4 && variants[i].settings[k]; k++)
            settings[count++] = variants[i].settings[k];
        train(&native, variants[i].ranks, true, settings, count);
        train(&other, variants[i].ranks, false, settings, count);
        if (memcmp(native.loss, other.loss, sizeof native.loss) ||
            memcmp(native.norm, other.norm, sizeof native.norm))
            fail_msg("%s, %s: losses %.9g to %.9g, not %.9g to %.9g", variants[i].settings[0],
                     variants[i].settings[1], native.loss[0], native.loss[native.steps - 1],
                     other.loss[0], other.loss[native.steps - 1]);
        CHECK(native.count == other.count);
        CHECK(!memcmp(native.scales, other.scales, native.count * sizeof *native.scales));
        free(native.scales), free(other.scales);
    }
}
