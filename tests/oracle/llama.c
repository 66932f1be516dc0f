// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"
#include "ops/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "ops/update.h"
#include "optim/optim.h"

/* tests/oracle/data: results of PyTorch and Transformers, from tests/oracle/llama.py. */
struct oracle {
    struct json *root;
    struct text gradients;
    struct model_shape shape;
    int B, T, num_batches;
    int32_t *ids, *labels; /* of all batches */
    float *weights;        /* NULL: 1 */
    float z_loss;
};

static int whole(const struct json *root, const char *key)
{
    int64_t n;
    CHECK_STATUS(OK, json_get_int(root, key, 1, 1 << 20, &n));
    return (int)n;
}

static double real(const struct json *root, const char *key)
{
    CHECK(json_is_number(json_get(root, key)));
    return json_number(json_get(root, key));
}

static int32_t *integers(const struct json *list, size_t count)
{
    int32_t *out = heap(count * sizeof *out);
    const struct json *v = json_first(list);
    CHECK(json_count(list) == count);
    for (size_t i = 0; i < count; i++, v = json_next(v)) {
        int64_t n;
        CHECK(json_as_int(v, -100, 1 << 20, &n));
        out[i] = (int32_t)n;
    }
    return out;
}

static float *reals(const struct json *list, size_t count)
{
    float *out = heap(count * sizeof *out);
    const struct json *v = json_first(list);
    CHECK(json_count(list) == count);
    for (size_t i = 0; i < count; i++, v = json_next(v)) out[i] = (float)json_number(v);
    return out;
}

static void oracle_read(struct oracle *o, const char *name)
{
    char path[96];
    *o = (struct oracle){0};
    snprintf(path, sizeof path, "tests/oracle/data/%s.json", name);
    CHECK_STATUS(OK, json_read(path, 1 << 20, &o->root));
    snprintf(path, sizeof path, "tests/oracle/data/%s.bin", name);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &o->gradients));
    const struct json *r = o->root, *scaling = json_get(r, "scaling");
    o->shape = (struct model_shape){.V = whole(r, "vocab"),
                                    .D = whole(r, "dim"),
                                    .L = whole(r, "layers"),
                                    .H = whole(r, "heads"),
                                    .G = whole(r, "kv_heads"),
                                    .K = whole(r, "head"),
                                    .F = whole(r, "hidden"),
                                    .rope_theta = real(r, "theta"),
                                    .norm_eps = real(r, "eps"),
                                    .qk_norm = json_true(json_get(r, "qk_norm")),
                                    .tied = json_true(json_get(r, "tied"))};
    const struct json *bias = json_get(r, "attention_bias");
    o->shape.qkv_bias = json_is_string(bias), o->shape.out_bias = json_string_is(bias, "all");
    o->shape.mlp_bias = json_true(json_get(r, "mlp_bias"));
    if (json_get(r, "z_loss")) o->z_loss = (float)real(r, "z_loss");
    if (scaling)
        o->shape.scaling = (struct rope_scaling){.factor = real(scaling, "factor"),
                                                 .low_frequency_factor = real(scaling, "low"),
                                                 .high_frequency_factor = real(scaling, "high"),
                                                 .original_context = whole(scaling, "original")};
    o->num_batches = whole(r, "batches"), o->B = whole(r, "rows"), o->T = whole(r, "tokens");
    o->shape.max_context = o->T;
    size_t tokens = (size_t)o->num_batches * (size_t)o->B * (size_t)o->T;
    o->ids = integers(json_get(r, "ids"), tokens);
    o->labels = integers(json_get(r, "labels"), tokens);
    const struct json *weights = json_get(r, "weights");
    if (weights) o->weights = reals(weights, tokens);
}

static void oracle_release(struct oracle *o)
{
    json_free(o->root);
    text_release(&o->gradients);
    free(o->ids), free(o->labels), free(o->weights);
}

/* The weights of the script: uniform in [-1, 1), splitmix64 of (tensor, element). */
static float noise(uint64_t tensor, uint64_t element)
{
    uint64_t z = ((tensor << 32) + element + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(z >> 40) * 0x1p-23f - 1;
}

/* Finds tensors by their Hugging Face names, as a checkpoint does. */
static void weights_of(const struct oracle *o, struct rig *r)
{
    const struct json *tensor = json_first(json_get(o->root, "tensors"));
    memset(r->weights, 0, r->m.layout.elements * sizeof(float));
    for (uint64_t i = 0; tensor; i++, tensor = json_next(tensor)) {
        const struct tensor_slot *t = layout_find_hf(&r->m.layout, json_string(json_first(tensor)));
        CHECK(t && t->rows == (int64_t)json_number(json_next(json_first(tensor))));
        for (size_t j = 0; j < t->elements; j++) {
            float w = noise(i, j) * 0.25f;
            r->weights[t->offset + j] = params[t->id].init == PARAM_INIT_ONES ? 1 + w : w;
        }
    }
    rig_cast(r);
}

static void batch_of(const struct oracle *o, struct rig *r, int which)
{
    size_t N = (size_t)o->B * (size_t)o->T;
    memcpy(r->ids, o->ids + (size_t)which * N, N * sizeof *r->ids);
    memcpy(r->labels, o->labels + (size_t)which * N, N * sizeof *r->labels);
    const float *weights = o->weights ? o->weights + (size_t)which * N : NULL;
    r->valid = 0, r->b.weight_BT = weights;
    for (size_t i = 0; i < N; i++)
        r->valid += weights ? weights[i] > 0 : r->labels[i] != LABEL_IGNORED;
    r->b.scale = (float)(1 / r->valid);
    r->b.z_loss = o->z_loss;
    r->b.causal = json_true(json_get(o->root, "causal"));
}

static void rig_of(const struct oracle *o, struct rig *r, const struct ops *ops, enum dtype dtype)
{
    rig_open(r, &o->shape, dtype, o->B, o->T);
    r->ops = *ops;
    weights_of(o, r);
    batch_of(o, r, 0);
}

static double mean_loss(const struct rig *r)
{
    double sum = 0;
    for (int i = 0; i < r->b.B * r->b.T; i++) sum += r->loss[i];
    return sum / r->valid;
}

/* Largest distance of a tensor's gradient from PyTorch's, relative to its norm. */
static double gradient_distance(const struct oracle *o, const struct rig *r)
{
    const struct json *tensor = json_first(json_get(o->root, "tensors"));
    const char *at = o->gradients.data;
    double most = 0;
    for (; tensor; tensor = json_next(tensor)) {
        const struct tensor_slot *t = layout_find_hf(&r->m.layout, json_string(json_first(tensor)));
        double off = 0, norm = 0;
        CHECK(at + t->elements * sizeof(float) <= o->gradients.data + o->gradients.len);
        for (size_t j = 0; j < t->elements; j++, at += sizeof(float)) {
            float want;
            memcpy(&want, at, sizeof want);
            off += pow((double)r->gradients[t->offset + j] - (double)want, 2);
            norm += (double)want * (double)want;
        }
        CHECK(norm > 0);
        most = fmax(most, sqrt(off / norm));
    }
    CHECK(at == o->gradients.data + o->gradients.len);
    return most;
}

static void check_step(const char *name, const struct ops *ops)
{
    struct oracle o;
    struct rig r;
    oracle_read(&o, name);
    rig_of(&o, &r, ops, F32);
    rig_train(&r);
    double want = real(o.root, "loss"), off = fabs(mean_loss(&r) / want - 1);
    double distance = gradient_distance(&o, &r);
    print_message("%s, %s: loss differs by %.1e, gradients by %.1e\n", name, ops->backend, off,
                  distance);
    CHECK(off < 1e-5 && distance < 1e-4);
    rig_close(&r);
    rig_of(&o, &r, ops, BF16);
    want = real(o.root, "bf16_loss"), off = fabs(rig_loss(&r) / want - 1);
    print_message("%s, %s: bfloat16 loss differs by %.1e\n", name, ops->backend, off);
    CHECK(off < 1e-2);
    rig_close(&r);
    oracle_release(&o);
}

/* Compares the losses of the script's AdamW steps; the batches repeat. */
static void check_training(const char *name, const struct ops *ops)
{
    struct oracle o;
    struct rig r;
    oracle_read(&o, name);
    rig_of(&o, &r, ops, F32);
    const struct json *adamw = json_get(o.root, "adamw"), *betas = json_get(adamw, "betas");
    struct optimizer_config config = {.lr = real(adamw, "lr"),
                                      .beta1 = json_number(json_first(betas)),
                                      .beta2 = json_number(json_next(json_first(betas))),
                                      .eps = real(adamw, "eps"),
                                      .weight_decay = real(adamw, "weight_decay"),
                                      .decay_norms = true};
    size_t n = r.m.layout.elements;
    float *moments = heap(2 * n * sizeof *moments);
    struct shard all;
    shard_init(&all, &r.m.layout, 0, 1);
    struct optim optim = {.config = &config,
                          .layout = &r.m.layout,
                          .shard = &all,
                          .weights = r.weights,
                          .exp_avg = moments,
                          .exp_avg_sq = moments + n};
    const struct json *want = json_first(json_get(o.root, "losses"));
    const struct json *want_norm = json_first(json_get(o.root, "norms"));
    double most = 0, most_norm = 0;
    enum { STEPS = TEST_SLOWED ? 5 : 50 };
    int step = 0;
    for (; want && step < STEPS; want = json_next(want), want_norm = json_next(want_norm)) {
        double norm;
        batch_of(&o, &r, step++ % o.num_batches);
        rig_train(&r);
        const struct sum_squares squares_of = {.n = optim.shard->elements};
        const struct sum_squares_io squares = {r.gradients, &norm};
        CHECK_STATUS(OK, sum_squares(&r.ops, &squares_of, &squares, r.queue));
        norm = sqrt(norm);
        double clip = optim_clip_factor(norm, real(adamw, "max_norm"));
        struct optim_update update = {
            .gradients = r.gradients, .lr = config.lr, .scale = clip, .step = step};
        CHECK_STATUS(OK, optim_step(&optim, &r.ops, &update, r.queue));
        most = fmax(most, fabs(mean_loss(&r) / json_number(want) - 1));
        most_norm = fmax(most_norm, fabs(norm / json_number(want_norm) - 1));
    }
    print_message("%s, %s: %d losses differ by %.1e, norms by %.1e\n", name, ops->backend, step,
                  most, most_norm);
    CHECK(step == STEPS && most < 1e-4 && most_norm < 1e-3);
    free(moments);
    shard_release(&all);
    rig_close(&r);
    oracle_release(&o);
}

static void check(const char *name, const struct ops *ops)
{
    check_step(name, ops);
    check_training(name, ops);
}

TEST(the_reference_follows_pytorch)
{
    static const char *const names[] = {"mha",       "gqa",     "tied",   "scaled", "masked",
                                        "diffusion", "qk_norm", "z_loss", "qwen2",  "biases"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check(names[i], &ops_cpu_reference);
}

CPU_ISAS_TEST(mha_llama_follows_pytorch) { check("mha", rig_fast()); }
CPU_ISAS_TEST(gqa_llama_follows_pytorch) { check("gqa", rig_fast()); }
CPU_ISAS_TEST(tied_llama_follows_pytorch) { check("tied", rig_fast()); }
CPU_ISAS_TEST(llama_with_scaled_rope_follows_pytorch) { check("scaled", rig_fast()); }
CPU_ISAS_TEST(bidirectional_llama_follows_pytorch) { check("masked", rig_fast()); }
CPU_ISAS_TEST(diffusion_llama_follows_pytorch) { check("diffusion", rig_fast()); }
CPU_ISAS_TEST(qwen3_follows_pytorch) { check("qk_norm", rig_fast()); }
CPU_ISAS_TEST(qwen2_follows_pytorch) { check("qwen2", rig_fast()); }
CPU_ISAS_TEST(llama_with_biases_follows_pytorch) { check("biases", rig_fast()); }
CPU_ISAS_TEST(qwen3_with_z_loss_follows_pytorch) { check("z_loss", rig_fast()); }
