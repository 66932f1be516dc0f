// SPDX-License-Identifier: Apache-2.0
#include "train/step_graph.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "base/rng.h"
#include "machine/machine.h"
#include "ops/cross_entropy.h"
#include "ops/rope.h"
#include "test.h"
#include "train/trainer.h"

#include <stdlib.h>

enum { STEPS = 8, MAX_SETTINGS = 24 };

#define SMALL_MODEL                                                                                \
    "model.dim=32", "model.n_layers=1", "model.n_heads=4", "model.n_kv_heads=2",                   \
        "model.ffn_hidden=48", "model.vocab_size=96", "training.local_batch_size=2",               \
        "training.seq_len=8", "optimizer.lr=1e-2", "lr_scheduler.warmup_steps=2",                  \
        "training.dataset_path=none"

struct emulator {
    enum status (*open)(struct queue **out, int device);
    void (*close)(struct queue *queue);
    const struct ops *ops;
};
static const struct emulator emulators[] = {
    {gpu_emu32_open, gpu_emu32_close, &gpu_emu32_ops},
    {gpu_emu64_open, gpu_emu64_close, &gpu_emu64_ops},
};

/* What a run leaves: loss and gradient norm of each step, and the weights. */
struct outcome {
    double loss[STEPS], grad_norm[STEPS];
    float *weights;
    size_t elements;
    size_t launches[STEPS], graphs[STEPS]; /* that the host submitted */
    size_t norms[STEPS];                   /* launches of sums of squares */
    bool is_enabled;                       /* at the end */
};

static size_t launches, graphs, norms;
static void observe(enum emulator_work work, const char *kernel, size_t bytes)
{
    (void)bytes;
    norms += work == EMULATOR_KERNEL && strstr(kernel, "sum_squares");
    launches += work != EMULATOR_WAIT && work != EMULATOR_GRAPH;
    graphs += work == EMULATOR_GRAPH;
}

static bool labels_alternate; /* every 5th token has a label, or every 3rd */

/* Other tokens, and another number of valid ones, in each step. */
static void fill_batch(struct trainer *t, int step)
{
    struct batch *b = &t->batch;
    int V = t->shape.V;
    b->valid = 0;
    for (size_t n = 0; n < (size_t)b->B * (size_t)b->T; n++) {
        b->ids_BT[n] = (int32_t)rng_below((uint64_t)V, 1, RNG_TEST, (uint64_t)step, n);
        bool is_ignored = n % 11 < (size_t)step % 4;
        if (!t->evaluator.causal) is_ignored = n % 3 && (step < 3 || step > 5);
        if (labels_alternate) is_ignored = n % (step % 2 ? 3 : 5);
        b->labels_BT[n] = is_ignored ? LABEL_IGNORED : (b->ids_BT[n] * 7 + 3) % V;
        b->start_BT[n] = 0, b->end_BT[n] = b->T;
        b->valid += b->labels_BT[n] != LABEL_IGNORED;
    }
}

static void run_steps(struct trainer *t, struct outcome *out)
{
    struct step_result result = {0};
    emulator_observe(observe);
    for (int i = 0; i < STEPS; i++) {
        launches = graphs = norms = 0;
        trainer_begin_step(t);
        fill_batch(t, i);
        CHECK_STATUS(OK, trainer_train_batch(t, &result));
        out->loss[i] = result.loss, out->grad_norm[i] = result.grad_norm;
        out->launches[i] = launches, out->graphs[i] = graphs, out->norms[i] = norms;
        CHECK(!result.skipped);
    }
    emulator_observe(NULL);
}

static void train(const struct emulator *e, const struct ops *ops, const char *graphs_setting,
                  const char *const *extra, struct outcome *out)
{
    const char *settings[MAX_SETTINGS] = {SMALL_MODEL};
    struct config config = {0};
    struct machine m = {0};
    struct model_shape shape;
    struct trainer t = {0};
    int n = 0;
    while (settings[n]) n++;
    settings[n++] = graphs_setting;
    for (int i = 0; extra[i]; i++) settings[n++] = extra[i];
    CHECK_STATUS(OK, machine_alone(&m));
    CHECK_STATUS(OK, e->open(&m.queue, 0));
    m.ops = ops;
    CHECK_STATUS(OK, config_load(&config, NULL, settings, n));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &config.model, 0));
    CHECK_STATUS(OK, trainer_open(&t, &config, &shape, &m));
    CHECK_STATUS(OK, trainer_init_weights(&t, 1));
    CHECK_STATUS(OK, trainer_sync_weights(&t));
    run_steps(&t, out);
    out->elements = t.shard.elements;
    out->weights = heap(out->elements * sizeof *out->weights);
    CHECK_STATUS(OK,
                 queue_copy(m.queue, out->weights, t.optim.weights, out->elements * sizeof(float)));
    out->is_enabled = t.step_graph.is_enabled;
    trainer_close(&t);
    e->close(m.queue);
    groups_close(&m.groups);
    config_release(&config);
}

static void check_same_bits(const struct outcome *a, const struct outcome *b)
{
    CHECK(!memcmp(a->loss, b->loss, sizeof a->loss));
    CHECK(!memcmp(a->grad_norm, b->grad_norm, sizeof a->grad_norm));
    CHECK(a->elements == b->elements);
    CHECK(!memcmp(a->weights, b->weights, a->elements * sizeof *a->weights));
}

static void compare(const struct emulator *e, const char *const *extra)
{
    struct outcome eager, graph;
    train(e, e->ops, "device.graphs=false", extra, &eager);
    train(e, e->ops, "device.graphs=true", extra, &graph);
    check_same_bits(&eager, &graph);
    for (int step = 0; step < STEPS; step++) CHECK(!eager.graphs[step]);
    CHECK(!eager.is_enabled && graph.is_enabled);
    CHECK(graph.graphs[STEPS - 1] == 1);
    CHECK(graph.launches[STEPS - 1] + 20 < eager.launches[STEPS - 1]);
    free(eager.weights), free(graph.weights);
}
#define COMPARE(e, ...) compare(&(e), (const char *const[]){__VA_ARGS__, NULL})

#define FLOAT32  "training.mixed_precision_param=float32"
#define BFLOAT16 "training.mixed_precision_param=bfloat16"
#define TIED     "model.tie_embeddings=true"

TEST(steps_have_the_same_bits_with_graphs_as_without)
{
    COMPARE(emulators[0], FLOAT32, TIED);
    COMPARE(emulators[1], FLOAT32, TIED);
    COMPARE(emulators[0], BFLOAT16, "activation_checkpoint.mode=full", "model.qk_norm=true");
}

TEST(graphs_accumulate_gradients_of_several_microbatches)
{
    COMPARE(emulators[1], BFLOAT16, "training.global_batch_size=6", "training.z_loss=0.01");
}

TEST(graphs_add_elastic_sums)
{
    COMPARE(emulators[0], FLOAT32, "training.determinism=elastic", "training.global_batch_size=8");
}

/* Of 128 tokens the head computes 64, but all in three steps. */
TEST(a_step_with_another_number_of_labels_is_captured_again)
{
    static const char *const masked[] = {FLOAT32, "objective.name=masked", "training.seq_len=64",
                                         NULL};
    for (size_t i = 0; i < (TEST_SLOWED ? 1 : sizeof emulators / sizeof *emulators); i++) {
        const struct emulator *e = &emulators[i];
        struct ops few = *e->ops;
        struct outcome all, eager, graph;
        few.logit_rows = 256;
        train(e, e->ops, "device.graphs=false", masked, &all);
        train(e, &few, "device.graphs=false", masked, &eager);
        train(e, &few, "device.graphs=true", masked, &graph);
        check_same_bits(&eager, &graph);
        for (int step = 0; step < STEPS; step++) {
            CHECK(graph.graphs[step] == (step != 0 && step != 3 && step != 6));
            CHECK_NEAR(eager.loss[step], all.loss[step], 1e-5);
            CHECK_NEAR(eager.grad_norm[step], all.grad_norm[step], 1e-5);
        }
        free(all.weights), free(eager.weights), free(graph.weights);
    }
}

/* Of 256 tokens the head needs 64 and 128, alternately. */
TEST(a_step_with_fewer_labels_replays_the_graph_of_the_most)
{
    static const char *const masked[] = {FLOAT32, "objective.name=masked", "training.seq_len=128",
                                         NULL};
    const struct emulator *e = &emulators[0];
    struct ops few = *e->ops;
    struct outcome eager, graph;
    few.logit_rows = 256;
    labels_alternate = true;
    train(e, &few, "device.graphs=false", masked, &eager);
    train(e, &few, "device.graphs=true", masked, &graph);
    labels_alternate = false;
    check_same_bits(&eager, &graph);
    for (int step = 0; step < STEPS; step++) CHECK(graph.graphs[step] == (step > 1));
    free(eager.weights), free(graph.weights);
}

/* Of embedding, block and head; each has a part for each of 8 microbatches. */
TEST(elastic_norm_takes_one_launch_for_all_parts_of_a_unit)
{
    static const char *const elastic[] = {FLOAT32, "training.determinism=elastic",
                                          "training.global_batch_size=16", NULL};
    const struct emulator *e = &emulators[0];
    struct outcome out;
    train(e, e->ops, "device.graphs=false", elastic, &out);
    print_message("  %zu launches, %zu for the norm\n", out.launches[STEPS - 1],
                  out.norms[STEPS - 1]);
    CHECK(out.norms[STEPS - 1] == 3);
    free(out.weights);
}

TEST(a_step_of_another_size_is_captured_again)
{
    static const char *const ramp[] = {BFLOAT16, "training.global_batch_size=6",
                                       "training.batch_ramp=[2, 2, 16]", NULL};
    const struct emulator *e = &emulators[0];
    struct outcome eager, graph;
    train(e, e->ops, "device.graphs=false", ramp, &eager);
    train(e, e->ops, "device.graphs=auto", ramp, &graph);
    check_same_bits(&eager, &graph);
    size_t changes = 0;
    for (int i = 1; i < STEPS; i++) {
        bool is_new = eager.launches[i] != eager.launches[i - 1];
        changes += is_new;
        CHECK(graph.graphs[i] == !is_new);
    }
    CHECK(changes == 2 && !graph.graphs[0]);
    free(eager.weights), free(graph.weights);
}

/* An operation that waits, which a capture does not permit. */
static enum status rope_that_waits(const struct rope *r, const struct rope_io *io,
                                   struct queue *queue)
{
    TRY(gpu_emu32_ops.rope(r, io, queue));
    TRY(queue_wait(queue));
    return STATUS_OK;
}

TEST(steps_that_cannot_be_captured_run_eagerly)
{
    static const char *const extra[] = {BFLOAT16, "training.global_batch_size=4", NULL};
    const struct emulator *e = &emulators[0];
    struct ops ops = gpu_emu32_ops;
    struct outcome eager, failed;
    ops.rope = rope_that_waits;
    train(e, e->ops, "device.graphs=false", extra, &eager);
    train(e, &ops, "device.graphs=true", extra, &failed);
    check_same_bits(&eager, &failed);
    for (int i = 0; i < STEPS; i++)
        CHECK(!failed.graphs[i] && failed.launches[i] >= eager.launches[i]);
    CHECK(!failed.is_enabled);
    free(eager.weights), free(failed.weights);
}

static const char *obstacle_of(const char *setting, const struct queue *queue, int ranks)
{
    const char *settings[] = {SMALL_MODEL, setting};
    struct config config = {0};
    struct mesh mesh = {0};
    for (int i = 0; i < AXIS_COUNT; i++) mesh.degree[i] = 1;
    mesh.degree[0] = ranks;
    CHECK_STATUS(OK, config_load(&config, NULL, settings, sizeof settings / sizeof *settings));
    const char *obstacle = step_graph_obstacle(&config, &mesh, queue);
    config_release(&config);
    return obstacle ? obstacle : "";
}

TEST(graphs_require_one_rank_of_a_gpu_and_arguments_that_stay)
{
    struct queue *gpu, cpu = {0};
    CHECK_STATUS(OK, gpu_emu32_open(&gpu, 0));
    CHECK(!*obstacle_of(BFLOAT16, gpu, 1));
    CHECK(strstr(obstacle_of(BFLOAT16, &cpu, 1), "GPU"));
    CHECK(strstr(obstacle_of(BFLOAT16, gpu, 2), "ranks"));
    CHECK(strstr(obstacle_of("model.attn_mask_type=block_causal", gpu, 1), "documents"));
    CHECK(strstr(obstacle_of("model.converters=[\"float8\"]", gpu, 1), "FP8"));
    CHECK(strstr(obstacle_of("activation_checkpoint.offload=true", gpu, 1), "streams"));
    CHECK(strstr(obstacle_of("training.gradient_dtype=bfloat16", gpu, 1), "bfloat16"));
    gpu_emu32_close(gpu);
}

TEST(auto_uses_graphs_for_small_models_but_not_on_amd_gpus)
{
    struct config c = {.device.graphs = AUTO};
    struct queue *nvidia, *amd, cpu = {0};
    CHECK_STATUS(OK, gpu_emu32_open(&nvidia, 0));
    CHECK_STATUS(OK, gpu_emu64_open(&amd, 0));
    CHECK(step_graph_is_requested(&c, nvidia, 135e6) && !step_graph_is_requested(&c, nvidia, 1e9));
    CHECK(!step_graph_is_requested(&c, amd, 135e6) && !step_graph_is_requested(&c, &cpu, 135e6));
    c.device.graphs = YES;
    CHECK(step_graph_is_requested(&c, nvidia, 1e9) && step_graph_is_requested(&c, amd, 135e6));
    c.device.graphs = NO;
    CHECK(!step_graph_is_requested(&c, nvidia, 135e6));
    gpu_emu32_close(nvidia), gpu_emu64_close(amd);
}
