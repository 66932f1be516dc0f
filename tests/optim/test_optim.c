// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/cpu/cpu.h"
#include "ops/update.h"
#include "optim/optim.h"

struct rig {
    struct model_shape shape;
    struct layout layout;
    struct shard shard;
    struct ops ops;
    struct queue *queue;
    struct optimizer_config config;
    float *buffers, *gradients;
    bf16 *copy;
    struct optim o;
};

static void open(struct rig *r)
{
    *r = (struct rig){.shape = {.V = 10, .D = 6, .L = 2, .H = 2, .G = 1, .K = 2, .F = 6},
                      .ops = ops_cpu_reference,
                      .config = {.lr = 0.1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .decay_norms = true}};
    layout_init(&r->layout, &r->shape, 1);
    shard_init(&r->shard, &r->layout, 0, 1);
    CHECK_STATUS(OK, cpu_queue_open(&r->queue, 2, 1 << 16));
    size_t n = r->layout.elements;
    r->buffers = heap(3 * n * sizeof(float));
    r->gradients = heap(n * sizeof(float));
    r->copy = heap(n * sizeof(bf16));
    r->o = (struct optim){.config = &r->config,
                          .layout = &r->layout,
                          .shard = &r->shard,
                          .weights = r->buffers,
                          .exp_avg = r->buffers + n,
                          .exp_avg_sq = r->buffers + 2 * n,
                          .copy = r->copy,
                          .copy_dtype = BF16};
    for (int i = 0; i < r->layout.num_tensors; i++) /* padding stays 0, as in the model */
        for (size_t j = 0; j < r->layout.tensors[i].elements; j++) {
            size_t at = r->layout.tensors[i].offset + j;
            r->buffers[at] = 1 + (float)(at % 5);
            r->gradients[at] = (float)(at % 3) - 1;
        }
}

static void close(struct rig *r)
{
    free(r->buffers), free(r->gradients), free(r->copy);
    shard_release(&r->shard);
    layout_release(&r->layout);
    cpu_queue_close(r->queue);
}

TEST(clip_factor_scales_down_and_never_up)
{
    CHECK(optim_clip_factor(0.5, 1) == 1 && optim_clip_factor(7, 0) == 1);
    CHECK(optim_clip_factor(4, 1) == 1 / (4 + 1e-6) && optim_clip_factor(0, 1) == 1);
}

/* AdamW's first step: decay, then lr against the sign of the gradient. */
static void check_first_step(bool decay_norms, bool decoupled)
{
    struct rig r;
    open(&r);
    r.config.decay_norms = decay_norms;
    float *before = heap(r.layout.elements * sizeof *before);
    memcpy(before, r.o.weights, r.layout.elements * sizeof *before);
    struct optim_update u = {.gradients = r.gradients,
                             .lr = 0.01,
                             .scale = 0.5,
                             .step = 1,
                             .is_decoupled = decoupled,
                             .decoupled_lr = 0.002};
    CHECK_STATUS(OK, optim_step(&r.o, &r.ops, &u, r.queue));
    size_t seen = 0;
    for (int i = 0; i < r.layout.num_tensors; i++) {
        const struct tensor_slot *t = &r.layout.tensors[i];
        bool decays = decay_norms || !param_is_vector(t->id);
        bool is_end = t->id == PARAM_embed || t->id == PARAM_head;
        double lr = decoupled && is_end ? 0.002 : 0.01;
        for (size_t at = t->offset; at < t->offset + t->elements; at++, seen++) {
            double want = (double)before[at] * (decays ? 1 - lr * 0.1 : 1);
            want -= lr * (double)r.gradients[at]; /* -1, 0 or 1 */
            CHECK_NEAR(r.o.weights[at], want, 1e-6);
            CHECK_NEAR(((const float *)r.o.exp_avg)[at], 0.1 * 0.5 * (double)r.gradients[at], 1e-7);
            CHECK(r.copy[at] == bf16_from_f32(r.o.weights[at]));
        }
    }
    CHECK(seen == (size_t)r.layout.parameters);
    double sum = 0;
    for (size_t i = 0; i < r.layout.elements; i++) sum += r.o.weights[i] != 0;
    CHECK(sum == (double)seen); /* padding is not written */
    free(before);
    close(&r);
}

TEST(optim_step_decays_every_weight) { check_first_step(true, false); }
TEST(optim_step_may_exclude_norms_from_weight_decay) { check_first_step(false, false); }
TEST(optim_step_gives_embedding_and_head_a_rate_of_their_own)
{
    check_first_step(true, true);
    check_first_step(false, true);
}

/* Buffers of a shard: each element has the value it has in the whole model. */
struct part {
    float *weights, *gradients;
    bf16 *exp_avg, *exp_avg_sq;
    struct shard exp_avg_sq_shard;
};

static struct part part_open(const struct rig *r, const struct shard *p)
{
    const struct layout *whole = &r->layout;
    size_t n = p->elements;
    struct part b = {.weights = heap(n * sizeof *b.weights),
                     .gradients = heap(n * sizeof *b.gradients),
                     .exp_avg = heap(n * sizeof *b.exp_avg)};
    shard_init_without(&b.exp_avg_sq_shard, p, whole, optim_first_moment_only(&r->config));
    b.exp_avg_sq = heap(b.exp_avg_sq_shard.elements * sizeof(bf16));
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < p->runs[i].count; k++) {
            size_t at = p->runs[i].at + k;
            size_t place = whole->tensors[p->runs[i].tensor].offset + p->runs[i].first + k;
            b.weights[at] = 1 + (float)(place % 5), b.gradients[at] = (float)(place % 7) - 3;
            b.exp_avg[at] = bf16_from_f32((float)(place % 3));
        }
    for (size_t i = 0; i < b.exp_avg_sq_shard.count; i++) {
        const struct shard_run *q = &b.exp_avg_sq_shard.runs[i];
        size_t place = whole->tensors[q->tensor].offset + q->first;
        for (size_t k = 0; k < q->count; k++)
            b.exp_avg_sq[q->at + k] = bf16_from_f32(3 + (float)((place + k) % 11));
    }
    return b;
}

static void part_step(const struct rig *r, const struct shard *p, struct part *b)
{
    struct optim o = {.config = &r->config,
                      .layout = &r->layout,
                      .shard = p,
                      .weights = b->weights,
                      .exp_avg = b->exp_avg,
                      .exp_avg_sq = b->exp_avg_sq,
                      .moments = BF16,
                      .seed = 11};
    struct optim_update u = {.gradients = b->gradients,
                             .lr = 0.01,
                             .scale = 0.5,
                             .step = 9,
                             .is_decoupled = true,
                             .decoupled_lr = 0.02};
    CHECK_STATUS(OK, optim_step(&o, &r->ops, &u, r->queue));
}

static void part_release(struct part *b)
{
    free(b->weights), free(b->gradients), free(b->exp_avg), free(b->exp_avg_sq);
    shard_release(&b->exp_avg_sq_shard);
}

static void check_parts(enum optimizer_name name)
{
    struct rig r;
    struct shard whole;
    open(&r);
    r.config.decay_norms = false, r.config.name = name;
    shard_init(&whole, &r.layout, 0, 1);
    struct part want = part_open(&r, &whole);
    part_step(&r, &whole, &want);
    for (int rank = 0; rank < 4; rank++) {
        struct model_shape here = model_shape_slice(&r.shape, rank % 2, 2);
        struct layout layout;
        struct shard p;
        layout_init(&layout, &here, 2);
        shard_init_sliced(&p, &layout, &r.layout,
                          (struct shard_position){rank / 2, 2, rank % 2, 2});
        struct part got = part_open(&r, &p);
        part_step(&r, &p, &got);
        for (size_t i = 0; i < p.count; i++) {
            size_t at = p.runs[i].at, n = p.runs[i].count;
            size_t place = r.layout.tensors[p.runs[i].tensor].offset + p.runs[i].first;
            CHECK(!memcmp(got.weights + at, want.weights + place, n * sizeof(float)));
            CHECK(!memcmp(got.exp_avg + at, want.exp_avg + place, n * sizeof(bf16)));
        }
        for (size_t i = 0; i < got.exp_avg_sq_shard.count; i++) {
            const struct shard_run *q = &got.exp_avg_sq_shard.runs[i];
            const struct shard_run *w = shard_find_run(&want.exp_avg_sq_shard, q->tensor, q->first);
            CHECK(!memcmp(got.exp_avg_sq + q->at, want.exp_avg_sq + w->at + (q->first - w->first),
                          q->count * sizeof(bf16)));
        }
        part_release(&got);
        shard_release(&p);
        layout_release(&layout);
    }
    part_release(&want);
    shard_release(&whole);
    close(&r);
}

TEST(bfloat16_moments_do_not_depend_on_sharding)
{
    check_parts(OPTIMIZER_AdamW);
    check_parts(OPTIMIZER_Muon);
}

static int num_calls, num_parts;
static size_t num_elements;
static enum status count_parts(const struct adamw *a, const struct adamw_io *io,
                               struct queue *queue)
{
    (void)io, (void)queue;
    num_calls++, num_parts += a->num_parts;
    for (int i = 0; i < a->num_parts; i++) num_elements += a->parts[i].count;
    return STATUS_OK;
}

/* Checks calls and parts of one step over `num_layers` layers. */
static void check_num_parts(const struct optimizer_config *config, enum dtype moments,
                            int num_layers, int calls, int parts)
{
    struct rig r;
    struct layout layout;
    struct shard shard;
    open(&r);
    struct ops ops = {.is_multi_tensor = true, .adamw = count_parts};
    struct model_shape shape = r.shape;
    shape.L = num_layers;
    layout_init(&layout, &shape, 1);
    shard_init(&shard, &layout, 0, 1);
    struct optim o = {.config = config, .layout = &layout, .shard = &shard, .moments = moments};
    struct optim_update u = {.lr = 0.01, .scale = 1, .step = 1};
    num_calls = num_parts = 0, num_elements = 0;
    CHECK_STATUS(OK, optim_step(&o, &ops, &u, r.queue));
    CHECK(num_calls == calls && num_parts == parts && num_elements <= layout.elements);
    if (config->name == OPTIMIZER_AdamW) CHECK(num_elements >= (size_t)layout.parameters);
    shard_release(&shard);
    layout_release(&layout);
    close(&r);
}

TEST(adjacent_weights_of_a_kind_are_one_part)
{
    struct optimizer_config uniform = {.weight_decay = 0.1, .decay_norms = true};
    struct optimizer_config by_kind = {.weight_decay = 0.1, .decay_norms = false};
    check_num_parts(&uniform, F32, 2, 1, 1);
    check_num_parts(&uniform, BF16, 2, 1, 1);
    /* embedding, 2 norms and 2 groups of matrices a layer, last norm, head */
    check_num_parts(&by_kind, F32, 2, 1, 1 + 2 * 4 + 2);
    check_num_parts(&by_kind, BF16, 2, 1, 1 + 2 * 4 + 2);
    check_num_parts(&by_kind, BF16, 40, 2, 1 + 40 * 4 + 2);
}

TEST(parts_do_not_reach_across_weights_that_muon_updates)
{
    struct optimizer_config muon = {
        .name = OPTIMIZER_Muon, .weight_decay = 0.1, .decay_norms = true};
    /* embedding and the first norm; then a norm between matrices; last norm and head */
    check_num_parts(&muon, F32, 1, 3, 3); /* a call each: between them are no second moments */
    check_num_parts(&muon, F32, 3, 1 + 2 * 3 - 1 + 1, 1 + 2 * 3 - 1 + 1);
}
