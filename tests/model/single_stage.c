// SPDX-License-Identifier: Apache-2.0
#include "model/single_stage.h"

#include "model/stage_pass.h"

enum status single_stage_evaluate(const struct model *m, const struct microbatch *b,
                                  struct arena *step)
{
    const struct stage whole = layout_whole_stage(&m->shape);
    size_t mark = arena_mark(step);
    struct activations shared;
    struct stage_pass p = {.stage = &whole, .shared = &shared};
    TRY(stage_pass_check(m, b));
    activations_alloc_shared(m, (size_t)b->B * (size_t)b->T, RECOMPUTE_FULL, &shared, step);
    TRY(stage_pass_infer(m, b, &p, shared.middle_SD, step));
    arena_reset(step, mark);
    return STATUS_OK;
}

enum status single_stage_train(const struct model *m, const struct microbatch *b,
                               struct arena *step)
{
    const struct stage whole = layout_whole_stage(&m->shape);
    size_t mark = arena_mark(step);
    struct activations shared;
    struct stage_pass p;
    enum status st = STATUS_OK;
    TRY(stage_pass_check(m, b));
    stage_pass_init(&p, &whole);
    stage_pass_alloc_shared(m, b, &shared, step);
    stage_pass_alloc(m, b, &shared, &p, step);
    void *dx = arena_alloc(step, stage_pass_residual_elements(m, b), dtype_bytes(m->dtype));
    TRY_OUT(stage_pass_forward(m, b, &p));
    TRY_OUT(stage_pass_backward(m, b, &p, dx, step));
    arena_reset(step, mark);
out:
    stage_pass_release(&p);
    return st;
}
