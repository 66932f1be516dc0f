// SPDX-License-Identifier: Apache-2.0
#include "model/float8_device.h"
#include "test.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "base/rng.h"
#include "machine/machine.h"
#include "train/trainer.h"

enum { STEPS = 3, SETTINGS = 20 };

struct device_run {
    double loss[STEPS], norm[STEPS];
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

/* Trains on an emulated GPU, with or without native FP8; two microbatches a step. */
static void train(struct device_run *r, bool native, const char *const *settings, int count)
{
    struct config config = {0};
    struct model_shape shape;
    struct machine m = {0};
    struct trainer t = {0};
    *r = (struct device_run){.count = 0};
    emulator_set_relaxed(true);
    CHECK_STATUS(OK, machine_alone(&m));
    CHECK_STATUS(OK, gpu_emu32_open(&m.queue, 0));
    ((struct gpu_queue *)m.queue)->native_fp8 = native;
    m.ops = &gpu_emu32_ops;
    CHECK_STATUS(OK, config_load(&config, NULL, settings, count));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &config.model, 0));
    CHECK_STATUS(OK, trainer_open(&t, &config, &shape, &m));
    CHECK((t.float8.device.queue != NULL) == native);
    CHECK_STATUS(OK, trainer_init_weights(&t, 1));
    CHECK_STATUS(OK, trainer_sync_weights(&t));
    for (int step = 0; step < STEPS; step++) {
        struct step_result s;
        fill_batch(&t.batch, shape.V, step);
        CHECK_STATUS(OK, trainer_train_batch(&t, &s));
        CHECK(!s.skipped);
        r->loss[step] = s.loss, r->norm[step] = s.grad_norm;
    }
    r->count = float8_num_amax(&t.float8);
    r->scales = heap((r->count + 1) * sizeof *r->scales);
    memcpy(r->scales, t.float8.scales, r->count * sizeof *r->scales);
    trainer_close(&t);
    gpu_emu32_close(m.queue);
    groups_close(&m.groups);
    config_release(&config);
    emulator_set_relaxed(false);
}

/* Quantizing in norms and SwiGLU, keeping what forward quantized, and recomputing it with the saved
 * scale are the same as storing everything in the model's dtype. */
TEST(native_fp8_changes_no_bit)
{
    static const char *const variants[][3] = {
        {"float8.recipe_name=tensorwise", "activation_checkpoint.mode=none", NULL},
        {"float8.recipe_name=tensorwise", "activation_checkpoint.mode=selective",
         "activation_checkpoint.selective_ac_option=op"},
        {"float8.recipe_name=tensorwise", "activation_checkpoint.mode=full",
         "training.mixed_precision_param=float32"},
        {"float8.recipe_name=delayed", "activation_checkpoint.mode=none", NULL},
        {"float8.recipe_name=delayed", "activation_checkpoint.mode=full",
         "float8.force_recompute_fp8_weight_in_bwd=true"},
        {"float8.recipe_name=delayed", "float8.filter_fqns=[\"layers.1.feed_forward\"]", NULL},
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
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
        struct device_run native, other;
        int count = 0;
        while (settings[count]) count++;
        for (int k = 0; k < 3 && variants[i][k]; k++) settings[count++] = variants[i][k];
        train(&native, true, settings, count);
        train(&other, false, settings, count);
        if (memcmp(native.loss, other.loss, sizeof native.loss) ||
            memcmp(native.norm, other.norm, sizeof native.norm))
            fail_msg("%s, %s: losses %.9g %.9g %.9g, not %.9g %.9g %.9g", variants[i][0],
                     variants[i][1], native.loss[0], native.loss[1], native.loss[2], other.loss[0],
                     other.loss[1], other.loss[2]);
        CHECK(native.count == other.count);
        CHECK(!memcmp(native.scales, other.scales, native.count * sizeof *native.scales));
        free(native.scales), free(other.scales);
    }
}
