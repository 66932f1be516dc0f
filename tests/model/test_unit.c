// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/unit.h"

TEST(units_without_a_provider_are_in_the_flat_buffers)
{
    struct model_shape s = rig_shape();
    struct rig r;
    rig_open(&r, &s, F32, 1, 4);
    for (int layer = 0; layer < s.L; layer++) {
        size_t offset = layout_find(&r.m.layout, PARAM_mlp_down, layer)->offset;
        CHECK_STATUS(OK, unit_open(&r.m, PARAM_attn_norm, layer, USE_WEIGHTS | USE_GRADIENTS));
        CHECK(unit_weight(&r.m, PARAM_mlp_down, layer) == r.weights + offset);
        CHECK(unit_gradient(&r.m, PARAM_mlp_down, layer) == r.gradients + offset);
        CHECK(!unit_overwrites_gradients(&r.m, PARAM_mlp_down, layer));
        CHECK_STATUS(OK, unit_close(&r.m, PARAM_attn_norm, layer, USE_WEIGHTS | USE_GRADIENTS));
    }
    rig_close(&r);
}

/* One buffer for any unit, with uninitialized gradients. */
struct one_buffer {
    struct unit_provider provider;
    float *gradients;
    int open;
};

static enum status open_buffer(struct unit_provider *p, int unit, unsigned use,
                               struct unit_buffers *buffers)
{
    struct one_buffer *b = (struct one_buffer *)p;
    CHECK(use == USE_GRADIENTS);
    b->open = unit;
    *buffers = (struct unit_buffers){.gradients = b->gradients, .overwrite = true};
    return STATUS_OK;
}

static enum status close_buffer(struct unit_provider *p, int unit, unsigned use)
{
    CHECK(((struct one_buffer *)p)->open == unit && use == (USE_GRADIENTS | USE_FINAL));
    ((struct one_buffer *)p)->open = -1;
    return STATUS_OK;
}

TEST(opening_a_unit_zeroes_the_gradients_that_no_gemm_overwrites)
{
    struct model_shape s = rig_shape();
    struct rig r;
    rig_open(&r, &s, F32, 1, 4);
    const struct layout *l = &r.m.layout;
    const struct unit *unit = &l->units[layout_unit(l, PARAM_attn_norm, 1)];
    struct one_buffer b = {{open_buffer, close_buffer}, heap(unit->elements * sizeof(float)), -1};
    for (size_t i = 0; i < unit->elements; i++) b.gradients[i] = NAN;
    r.m.units = &b.provider;
    CHECK_STATUS(OK, unit_open(&r.m, PARAM_attn_norm, 1, USE_GRADIENTS));
    CHECK(unit_overwrites_gradients(&r.m, PARAM_mlp_norm, 1));
    size_t end = 0;
    for (int i = 0; i < unit->num_tensors; i++) {
        const struct tensor_slot *t = &l->tensors[unit->first_tensor + i];
        float *gradient = unit_gradient(&r.m, t->id, 1);
        end = t->offset + t->elements - unit->offset;
        CHECK(param_is_vector(t->id) ? gradient[0] == 0 : isnan(gradient[0]));
    }
    for (size_t i = end; i < unit->elements; i++) CHECK(b.gradients[i] == 0);
    CHECK_STATUS(OK, unit_zero_gradient(&r.m, PARAM_attn_q, 1));
    CHECK(unit_gradient(&r.m, PARAM_attn_q, 1)[0] == 0);
    CHECK_STATUS(OK, unit_close(&r.m, PARAM_attn_norm, 1, USE_GRADIENTS | USE_FINAL));
    CHECK(b.open == -1);
    free(b.gradients);
    r.m.units = NULL;
    rig_close(&r);
}
