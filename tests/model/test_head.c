// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/head.h"

/* A vocabulary whose logits need two chunks for 1100 rows, and one for half of them. */
TEST(chunked_logits_match_unchunked)
{
    struct model_shape s = small_shape();
    s.V = 33000, s.D = s.K = s.F = 4, s.L = s.H = s.G = 1, s.rope_theta = 100;
    struct rig r;
    rig_open(&r, &s, F32, 2, 550);
    size_t n = r.m.layout.elements;
    float *loss = heap(1100 * sizeof *loss), *gradients = heap(n * sizeof *gradients);
    rig_train(&r);
    CHECK(r.step.size > 550 * 33000 * sizeof(float) && r.step.size < 1024 * 33000 * sizeof(float));
    memcpy(loss, r.loss, 1100 * sizeof *loss);
    memcpy(gradients, r.gradients, n * sizeof *gradients);
    memset(r.gradients, 0, n * sizeof *gradients);
    r.b.B = 1;
    for (int row = 0; row < 2; row++) {
        CHECK_STATUS(OK, single_stage_train(&r.m, &r.b, &r.step));
        for (int t = 0; t < 550; t++) CHECK_NEAR(r.loss[t], loss[row * 550 + t], 1e-6);
        r.b.ids_BT += 550, r.b.labels_BT += 550;
    }
    for (size_t i = 0; i < n; i++) CHECK_NEAR(r.gradients[i], gradients[i], 1e-6);
    free(loss), free(gradients);
    rig_close(&r);
}

/* Two chunks by default; one if the backend has logit_rows of 2048 rows. */
TEST(backend_chooses_how_many_logits_exist_at_a_time)
{
    struct model_shape s = small_shape();
    s.V = 33000, s.D = s.K = s.F = 4, s.L = s.H = s.G = 1, s.rope_theta = 100;
    struct rig r;
    rig_open(&r, &s, F32, 1, 1100);
    size_t n = r.m.layout.elements, by_default = rig_size(&r, single_stage_train);
    float *loss = heap(1100 * sizeof *loss), *gradients = heap(n * sizeof *gradients);
    rig_train(&r);
    memcpy(loss, r.loss, 1100 * sizeof *loss);
    memcpy(gradients, r.gradients, n * sizeof *gradients);
    r.ops.logit_rows = 2048;
    rig_train(&r);
    CHECK(r.step.size > by_default + 500 * 33000 * sizeof(float));
    for (int t = 0; t < 1100; t++) CHECK(r.loss[t] == loss[t]);
    for (size_t i = 0; i < n; i++) CHECK_NEAR(r.gradients[i], gradients[i], 1e-6);
    free(loss), free(gradients);
    rig_close(&r);
}

TEST(head_param_of_tied_model_is_the_embedding)
{
    struct model m = {.shape = rig_shape()};
    CHECK(head_param(&m) == PARAM_head);
    m.shape.tied = true;
    CHECK(head_param(&m) == PARAM_embed);
}
