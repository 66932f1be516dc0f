// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/embed.h"

TEST(embedding_copies_rows_and_accumulates_their_gradients)
{
    enum { N = 18, D = 16 };
    struct model_shape s = rig_shape();
    struct rig r;
    float x[N * D], want[37 * D] = {0};
    rig_open(&r, &s, F32, 2, 9);
    CHECK_STATUS(OK, embed_forward(&r.m, &r.b, NULL, x));
    for (size_t i = 0; i < N; i++)
        CHECK(!memcmp(x + i * D, r.weights + (size_t)r.ids[i] * D, D * sizeof *x));
    for (size_t i = 0; i < N * D; i++) {
        x[i] = (float)(i % 7);
        want[(size_t)r.ids[i / D] * D + i % D] += x[i];
    }
    memset(r.gradients, 0, r.m.layout.elements * sizeof *r.gradients);
    CHECK_STATUS(
        OK, embed_backward(&r.m, &r.b, (struct embed_gradients){NULL, x, USE_GRADIENTS, false}));
    for (size_t i = 0; i < 37 * D; i++) CHECK(r.gradients[i] == want[i]);
    rig_close(&r);
}
