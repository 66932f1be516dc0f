// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/stage_pass.h"

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
