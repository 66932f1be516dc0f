// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/init_weights.h"
#include "model/stage_pass.h"

/* --- the whole model as one stage --- */

/* Slope of the loss along direction d of one tensor. */
static double slope(struct rig *r, const struct tensor_slot *t, const float *d, double h)
{
    float *w = r->weights + t->offset, *old = heap(t->elements * sizeof *old);
    double loss[2];
    memcpy(old, w, t->elements * sizeof *old);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < t->elements; i++) w[i] = old[i] + (float)(side ? h : -h) * d[i];
        loss[side] = rig_loss(r);
    }
    memcpy(w, old, t->elements * sizeof *old);
    free(old);
    return (loss[1] - loss[0]) / (2 * h);
}

/* Along the gradient and along a random direction, tensor by tensor. */
static void check_gradients(struct rig *r)
{
    const struct layout *l = &r->m.layout;
    rig_train(r);
    for (int i = 0; i < l->num_tensors; i++) {
        const struct tensor_slot *t = &l->tensors[i];
        float *g = r->gradients + t->offset, *d = heap(t->elements * sizeof *d);
        double squares = 0, random = 0;
        char name[96];
        for (size_t j = 0; j < t->elements; j++) squares += (double)g[j] * (double)g[j];
        double norm = sqrt(squares), root = sqrt((double)t->elements);
        for (size_t j = 0; j < t->elements; j++) d[j] = (float)((double)g[j] / norm);
        double along = slope(r, t, d, 1e-3);
        for (size_t j = 0; j < t->elements; j++) {
            d[j] = (float)(rng_normal(9, RNG_TEST, (uint64_t)i, j) / root);
            random += (double)d[j] * (double)g[j];
        }
        double across = slope(r, t, d, 1e-3);
        free(d);
        layout_tensor_name(t, true, name);
        if (!(norm > 1e-4) || !(fabs(along - norm) < 2e-3 * norm + 3e-4) ||
            !(fabs(across - random) < 2e-3 * norm + 3e-4))
            fail_msg("%s: |g| %g, slope %g; at random %g, slope %g", name, norm, along, random,
                     across);
    }
}

static void gradients_of(const struct model_shape *s, bool causal, int document)
{
    struct rig r;
    rig_open(&r, s, F32, 2, 11);
    r.b.causal = causal;
    if (document) rig_documents(&r, document);
    check_gradients(&r);
    rig_close(&r);
}

TEST(gradients_match_finite_differences_with_multi_head_attention)
{
    struct model_shape s = rig_shape();
    s.G = 4;
    gradients_of(&s, true, 0);
}

TEST(gradients_match_finite_differences_with_grouped_query_attention)
{
    struct model_shape s = rig_shape();
    gradients_of(&s, true, 0);
}

TEST(gradients_match_finite_differences_with_a_tied_head)
{
    struct model_shape s = rig_shape();
    s.tied = true;
    gradients_of(&s, true, 0);
}

TEST(gradients_match_finite_differences_with_scaled_rope)
{
    struct model_shape s = rig_shape();
    s.scaling = (struct rope_scaling){
        .factor = 8, .low_frequency_factor = 1, .high_frequency_factor = 4, .original_context = 8};
    s.K = 6;
    gradients_of(&s, true, 0);
}

TEST(gradients_match_finite_differences_with_rope_of_a_part_of_each_head)
{
    struct model_shape s = rig_shape();
    s.partial_rotary_factor = 0.5;
    gradients_of(&s, true, 0);
    s.K = 10, s.partial_rotary_factor = 0.45; /* 4 of 10 */
    gradients_of(&s, true, 4);
}

TEST(gradients_match_finite_differences_with_qk_norm)
{
    struct model_shape s = rig_shape();
    s.qk_norm = true;
    gradients_of(&s, true, 0);
    s.K = 6;
    gradients_of(&s, false, 4);
}

TEST(gradients_match_finite_differences_with_norms_behind)
{
    struct model_shape s = rig_shape();
    s.qk_norm = s.post_norm = true;
    gradients_of(&s, true, 0);
    s.qkv_bias = s.out_bias = true, s.K = 6;
    gradients_of(&s, false, 4);
}

TEST(gradients_match_finite_differences_with_biases)
{
    struct model_shape s = rig_shape();
    s.qkv_bias = true;
    gradients_of(&s, true, 0);
    s.out_bias = s.mlp_bias = true, s.K = 6;
    gradients_of(&s, false, 4);
}

/* Multipliers as Granite has them, and every second block without RoPE, as SmolLM3 has it. */
static void set_multipliers(struct model_shape *s)
{
    model_shape_set_multipliers(s, 3, 0.7, 0.31, 1.7);
}

TEST(gradients_match_finite_differences_with_multipliers)
{
    struct model_shape s = rig_shape();
    set_multipliers(&s);
    gradients_of(&s, true, 0);
    s.tied = s.qkv_bias = s.out_bias = s.mlp_bias = true;
    gradients_of(&s, true, 4);
}

TEST(gradients_match_finite_differences_with_blocks_without_rope)
{
    struct model_shape s = rig_shape();
    s.no_rope_interval = 2;
    gradients_of(&s, true, 0);
}

/* Position matters to a block only by way of RoPE and the causal mask. */
TEST(without_rope_and_causal_mask_the_order_of_other_tokens_does_not_matter)
{
    for (int interval = 0; interval < 2; interval++) {
        struct model_shape s = rig_shape();
        struct rig r;
        s.no_rope_interval = interval;
        rig_open(&r, &s, F32, 1, 11);
        for (int i = 0; i < 11; i++) r.ids[i] = i, r.labels[i] = 1;
        r.b.causal = false;
        rig_run(&r, single_stage_evaluate);
        double before = (double)r.loss[10];
        r.ids[0] = 3, r.ids[3] = 0;
        rig_run(&r, single_stage_evaluate);
        CHECK((fabs((double)r.loss[10] - before) < 1e-5) == (interval == 1));
        rig_close(&r);
    }
}

TEST(gradients_match_finite_differences_with_a_sliding_window)
{
    struct model_shape s = rig_shape();
    s.window = 3;
    gradients_of(&s, true, 0);
    gradients_of(&s, true, 4);
}

TEST(gradients_match_finite_differences_without_causal_mask)
{
    struct model_shape s = rig_shape();
    gradients_of(&s, false, 0);
}

TEST(gradients_match_finite_differences_with_a_document_mask)
{
    struct model_shape s = rig_shape();
    gradients_of(&s, true, 4);
    gradients_of(&s, false, 4);
}

/* Changes a token of row 0; differs: at which positions the loss then differs. */
static void change_token(struct rig *r, int at, bool *differs)
{
    size_t N = (size_t)r->b.B * (size_t)r->b.T;
    float *before = heap(N * sizeof *before);
    rig_run(r, single_stage_evaluate);
    memcpy(before, r->loss, N * sizeof *before);
    r->ids[at] = (r->ids[at] + 1) % r->m.shape.V;
    rig_run(r, single_stage_evaluate);
    for (size_t i = 0; i < N; i++) differs[i] = memcmp(&before[i], &r->loss[i], sizeof(float));
    free(before);
}

TEST(a_causal_model_ignores_later_tokens_and_other_rows)
{
    struct model_shape s = rig_shape();
    struct rig r;
    bool differs[22];
    rig_open(&r, &s, F32, 2, 11);
    for (int i = 0; i < 22; i++) r.labels[i] = 1;
    change_token(&r, 5, differs);
    for (int i = 0; i < 22; i++) CHECK(differs[i] == (i >= 5 && i < 11));
    r.b.causal = false;
    change_token(&r, 5, differs);
    for (int i = 0; i < 22; i++) CHECK(differs[i] == (i < 11));
    rig_close(&r);
}

TEST(documents_do_not_attend_to_each_other)
{
    struct model_shape s = rig_shape();
    struct rig r;
    bool differs[11];
    rig_open(&r, &s, F32, 1, 11);
    for (int i = 0; i < 11; i++) r.labels[i] = 1;
    rig_documents(&r, 4);
    change_token(&r, 5, differs);
    for (int i = 0; i < 11; i++) CHECK(differs[i] == (i >= 5 && i < 8));
    r.b.causal = false;
    change_token(&r, 5, differs);
    for (int i = 0; i < 11; i++) CHECK(differs[i] == (i >= 4 && i < 8));
    rig_close(&r);
}

TEST(recomputation_gives_the_same_bits_in_less_memory)
{
    struct model_shape s = rig_shape();
    s.L =
        5; /* so that saving every second block and sharing one buffer needs less than saving all */
    for (int variant = 0; variant < 4 * DTYPE_COUNT; variant++) {
        enum dtype dtype = (enum dtype)(variant / 4);
        struct rig r;
        s.qk_norm = variant % 2, s.post_norm = variant % 4 == 3, s.mlp_bias = variant % 4 == 2;
        s.qkv_bias = s.out_bias = s.mlp_bias;
        s.no_rope_interval = variant % 4 == 0 ? 2 : 0;
        model_shape_set_multipliers(&s, 1, variant % 4 == 2 ? 0.7 : 1, 0, 1);
        rig_open(&r, &s, dtype, 2, 11);
        size_t bytes = r.m.layout.elements * sizeof(float), memory[4];
        float *saved = heap(bytes), losses[22];
        static const struct {
            enum recompute kind;
            int every;
        } modes[] = {{RECOMPUTE_NONE, 1},
                     {RECOMPUTE_FULL, 2},
                     {RECOMPUTE_SELECTIVE, 1},
                     {RECOMPUTE_FULL, 0}};
        for (int i = 0; i < 4; i++) {
            r.m.recompute = modes[i].kind, r.m.recompute_every = modes[i].every;
            rig_train(&r);
            memory[i] = r.step.peak;
            if (!i) memcpy(saved, r.gradients, bytes), memcpy(losses, r.loss, sizeof losses);
            CHECK(!memcmp(saved, r.gradients, bytes) && !memcmp(losses, r.loss, sizeof losses));
        }
        CHECK(memory[3] < memory[2] && memory[2] < memory[0] && memory[1] < memory[0]);
        /* FULL leaves the buffers of one of five blocks; every second: blocks 1 and 3 share one. */
        CHECK(memory[0] - memory[3] == 4 * (memory[0] - memory[1]));
        free(saved);
        rig_close(&r);
    }
}

TEST(training_and_evaluation_give_the_same_losses)
{
    struct model_shape s = rig_shape();
    struct rig r;
    float losses[22];
    int32_t best[22];
    rig_open(&r, &s, BF16, 2, 11);
    rig_train(&r);
    memcpy(losses, r.loss, sizeof losses), memcpy(best, r.best, sizeof best);
    memset(r.loss, 0, sizeof losses);
    rig_run(&r, single_stage_evaluate);
    CHECK(!memcmp(losses, r.loss, sizeof losses) && !memcmp(best, r.best, sizeof best));
    for (int i = 0; i < 22; i++) CHECK((r.loss[i] == 0) == (r.labels[i] == LABEL_IGNORED));
    rig_close(&r);
}

TEST(gradients_accumulate_over_microbatches)
{
    struct model_shape s = rig_shape();
    struct rig r;
    rig_open(&r, &s, F32, 2, 11);
    size_t n = r.m.layout.elements;
    float *once = heap(n * sizeof *once);
    rig_train(&r);
    memcpy(once, r.gradients, n * sizeof *once);
    memset(r.gradients, 0, n * sizeof *once);
    r.b.B = 1;
    CHECK_STATUS(OK, single_stage_train(&r.m, &r.b, &r.step));
    r.b.ids_BT += 11, r.b.labels_BT += 11;
    CHECK_STATUS(OK, single_stage_train(&r.m, &r.b, &r.step));
    for (size_t i = 0; i < n; i++) CHECK_NEAR(r.gradients[i], once[i], 1e-6);
    free(once);
    rig_close(&r);
}

TEST(a_batch_without_labels_has_no_gradient)
{
    struct model_shape s = rig_shape();
    struct rig r;
    rig_open(&r, &s, F32, 2, 11);
    for (int i = 0; i < 22; i++) r.labels[i] = LABEL_IGNORED;
    rig_train(&r);
    for (size_t i = 0; i < r.m.layout.elements; i++) CHECK(r.gradients[i] == 0);
    rig_close(&r);
}

TEST(microbatches_of_invalid_sizes_are_rejected)
{
    struct model_shape s = rig_shape();
    struct rig r;
    rig_open(&r, &s, F32, 1, 4);
    r.b.T = 5;
    CHECK_STATUS(SHAPE, single_stage_train(&r.m, &r.b, &r.step));
    CHECK_MESSAGE("1 rows of 5 tokens");
    r.b.T = 0;
    CHECK_STATUS(SHAPE, single_stage_evaluate(&r.m, &r.b, &r.step));
    r.b.T = 4, r.b.B = 1 << 30;
    CHECK_STATUS(SHAPE, single_stage_evaluate(&r.m, &r.b, &r.step));
    rig_close(&r);
}

/* The head has deviation 1/sqrt(D), truncated at 3: logits of variance 0.9735. */
TEST(initial_loss_is_near_uniform)
{
    struct model_shape s = rig_shape();
    struct rig r;
    s.V = 512, s.D = 64, s.K = 16;
    rig_open(&r, &s, F32, 2, 64);
    const struct store to = store_f32(r.weights, NULL);
    struct shard all;
    shard_init(&all, &r.m.layout, 0, 1);
    CHECK_STATUS(OK, init_weights_store(&r.m.layout, &all, &s, 5, &to));
    shard_release(&all);
    CHECK_NEAR(rig_loss(&r) / (log(512) + 0.9735 / 2), 1, 0.03);
    rig_close(&r);
}

/* --- several stages --- */

/* Two stages of the rig's model: the embedding with a block, two blocks with the head. */
static const struct stage stages[] = {{.begin = 0, .end = 1, .embeds = true},
                                      {.begin = 1, .end = 3, .heads = true}};

struct staged {
    struct activations shared;
    struct stage_pass passes[2][2]; /* stage, microbatch */
    void *between[2], *dx;
};

/* Allocates both stages from the step arena, which may be a sizing one. */
static void staged_alloc(struct staged *s, struct rig *r)
{
    size_t n = stage_pass_residual_elements(&r->m, &r->b), each = dtype_bytes(r->m.dtype);
    stage_pass_alloc_shared(&r->m, &r->b, &s->shared, &r->step);
    s->dx = arena_alloc(&r->step, n, each);
    for (int micro = 0; micro < 2; micro++) {
        s->between[micro] = arena_alloc(&r->step, n, each);
        for (int i = 0; i < 2; i++) {
            struct stage_pass *p = &s->passes[i][micro];
            stage_pass_alloc(&r->m, &r->b, &s->shared, p, &r->step);
            if (i == 0) p->out_SD = s->between[micro];
            if (i == 1) p->in_SD = s->between[micro];
        }
    }
}

static void staged_open(struct staged *s, struct rig *r)
{
    for (int i = 0; i < 4; i++) stage_pass_init(&s->passes[i / 2][i % 2], &stages[i / 2]);
    r->step = (struct arena){0};
    staged_alloc(s, r);
    size_t kept = r->step.used, rest = rig_size(r, single_stage_train);
    CHECK_STATUS(OK, arena_init(&r->step, kept + rest, NULL));
    staged_alloc(s, r);
    CHECK(r->step.used == kept);
}

static void staged_close(struct staged *s)
{
    for (int i = 0; i < 4; i++) stage_pass_release(&s->passes[i / 2][i % 2]);
}

static void forward(struct staged *s, struct rig *r, int micro)
{
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(OK, stage_pass_forward(&r->m, &r->b, &s->passes[i][micro]));
}

static void backward(struct staged *s, struct rig *r, int micro)
{
    for (int i = 1; i >= 0; i--)
        CHECK_STATUS(OK, stage_pass_backward(&r->m, &r->b, &s->passes[i][micro], s->dx, &r->step));
}

static void check_stages(bool tied, enum dtype dtype, enum recompute recompute)
{
    struct model_shape shape = rig_shape();
    struct rig r;
    struct staged s = {0};
    shape.tied = tied;
    rig_open(&r, &shape, dtype, 2, 9);
    r.m.recompute = recompute;
    size_t bytes = r.m.layout.elements * sizeof(float), tokens = 18 * sizeof(float);
    float *want = heap(bytes), losses[18];
    rig_train(&r);
    CHECK_STATUS(OK, single_stage_train(&r.m, &r.b, &r.step)); /* a second, equal microbatch */
    memcpy(want, r.gradients, bytes);
    memcpy(losses, r.loss, tokens);
    memset(r.gradients, 0, bytes), memset(r.loss, 0, tokens);
    arena_release(&r.step);

    staged_open(&s, &r);
    forward(&s, &r, 0);
    forward(&s, &r, 1); /* two microbatches in flight */
    backward(&s, &r, 0);
    CHECK(!memcmp(losses, r.loss, tokens));
    backward(&s, &r, 1);
    CHECK(!memcmp(want, r.gradients, bytes));
    staged_close(&s);
    free(want);
    rig_close(&r);
}

TEST(stages_in_sequence_match_the_whole_model_bit_for_bit)
{
    for (int tied = 0; tied < 2; tied++)
        for (int level = RECOMPUTE_NONE; level <= RECOMPUTE_FULL; level++) {
            check_stages(tied, F32, (enum recompute)level);
            check_stages(tied, BF16, (enum recompute)level);
        }
}

TEST(inference_by_stages_matches_the_losses_of_the_whole_model)
{
    struct model_shape shape = rig_shape();
    struct activations shared;
    struct rig r;
    float losses[18];
    rig_open(&r, &shape, F32, 2, 9);
    rig_loss(&r);
    memcpy(losses, r.loss, sizeof losses);
    memset(r.loss, 0, sizeof losses);
    size_t step = rig_size(&r, single_stage_evaluate);
    arena_release(&r.step);
    CHECK_STATUS(OK, arena_init(&r.step, step, NULL));
    activations_alloc_shared(&r.m, 18, RECOMPUTE_FULL, &shared, &r.step);
    struct stage_pass passes[] = {{.stage = &stages[0], .shared = &shared},
                                  {.stage = &stages[1], .shared = &shared}};
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(OK, stage_pass_infer(&r.m, &r.b, &passes[i], shared.middle_SD, &r.step));
    CHECK(!memcmp(losses, r.loss, sizeof losses));
    rig_close(&r);
}

TEST(stage_without_blocks_only_embeds)
{
    static const struct stage front = {.embeds = true};
    struct model_shape shape = rig_shape();
    struct activations shared;
    struct rig r;
    struct stage_pass p;
    float x[2 * 9 * 16];
    rig_open(&r, &shape, F32, 2, 9);
    stage_pass_init(&p, &front);
    CHECK_STATUS(OK, arena_init(&r.step, 1 << 20, NULL));
    stage_pass_alloc_shared(&r.m, &r.b, &shared, &r.step);
    size_t before = r.step.used;
    stage_pass_alloc(&r.m, &r.b, &shared, &p, &r.step);
    CHECK(r.step.used == before);
    p.in_SD = p.out_SD = x;
    CHECK_STATUS(OK, stage_pass_forward(&r.m, &r.b, &p));
    for (size_t i = 0; i < 18; i++)
        CHECK(!memcmp(x + i * 16, r.weights + (size_t)r.ids[i] * 16, 16 * sizeof *x));
    stage_pass_release(&p);
    rig_close(&r);
}
