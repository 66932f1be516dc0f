// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/cross_entropy.h"

static void compare(int N, int V, enum dtype dtype)
{
    size_t n = (size_t)N * (size_t)V;
    struct cross_entropy c = {N, V, dtype, 0.25f, true};
    void *logits[2];
    float *loss[2];
    int32_t *best[2], *labels = heap((size_t)N * sizeof *labels);
    for (int i = 0; i < N; i++) labels[i] = i % 3 == 2 ? LABEL_IGNORED : i * 37 % V;
    for (int i = 0; i < 2; i++) {
        logits[i] = rig_random(1, n, dtype);
        loss[i] = rig_zeros((size_t)N, F32), best[i] = rig_zeros((size_t)N, F32);
        struct cross_entropy_io io = {logits[i], labels, loss[i], best[i]};
        RIG_RUN(cross_entropy(i ? rig_fast() : &ops_cpu_reference, &c, &io, rig_queue()));
    }
    RIG_CLOSE(logits[1], logits[0], n, dtype);
    RIG_CLOSE(loss[1], loss[0], (size_t)N, F32);
    CHECK(!memcmp(best[0], best[1], (size_t)N * sizeof **best));
    for (int i = 0; i < N; i++)
        if (labels[i] == LABEL_IGNORED) CHECK(loss[1][i] == 0);
    for (int i = 0; i < 2; i++) free(logits[i]), free(loss[i]), free(best[i]);
    free(labels);
}

OPS_TEST(cross_entropy_agrees_with_the_reference_at_odd_sizes)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        compare(1, 1, (enum dtype)d);
        compare(5, 7, (enum dtype)d);
        compare(33, 513, (enum dtype)d);
        compare(4, 32001, (enum dtype)d);
    }
}

OPS_TEST(equal_logits_cost_the_logarithm_of_the_vocabulary)
{
    enum { V = 50 };
    for (int i = 0; i < 2; i++) {
        float logits[V] = {0}, loss, sum = 0;
        int32_t label = 7, best;
        struct cross_entropy c = {1, V, F32, 1, true};
        struct cross_entropy_io io = {logits, &label, &loss, &best};
        RIG_RUN(cross_entropy(i ? rig_fast() : &ops_cpu_reference, &c, &io, rig_queue()));
        CHECK_NEAR((double)loss, log(V), 1e-6);
        CHECK(best == 0);
        for (int v = 0; v < V; v++) sum += logits[v];
        CHECK_NEAR((double)sum, 0, 1e-6);
        CHECK_NEAR((double)logits[7], 1.0 / V - 1, 1e-6);
    }
}

struct entropy_loss {
    int32_t labels[3];
    float *x, scale;
};

static double loss(void *context)
{
    struct entropy_loss *k = context;
    struct cross_entropy c = {3, 6, F32, 1, false};
    float losses[3];
    struct cross_entropy_io io = {k->x, k->labels, losses, NULL};
    CHECK_STATUS(OK, cross_entropy(&ops_cpu_reference, &c, &io, rig_queue()));
    return (double)k->scale * ((double)losses[0] + (double)losses[1] + (double)losses[2]);
}

TEST(cross_entropy_gradient_is_the_difference)
{
    struct entropy_loss k = {.labels = {5, LABEL_IGNORED, 0}, .scale = 0.5f};
    struct cross_entropy c = {3, 6, F32, k.scale, true};
    float losses[3];
    k.x = rig_random(1, 18, F32);
    float *dx = rig_copy(k.x, 18, F32);
    struct cross_entropy_io io = {dx, k.labels, losses, NULL};
    CHECK_STATUS(OK, cross_entropy(&ops_cpu_reference, &c, &io, rig_queue()));
    rig_check_gradient("logits", k.x, 18, dx, loss, &k);
    free(k.x), free(dx);
}

TEST(cross_entropy_refuses_empty_sizes)
{
    struct cross_entropy c = {1, 0, F32, 1, true};
    CHECK_STATUS(SHAPE, cross_entropy(&ops_cpu_reference, &c, NULL, rig_queue()));
}
