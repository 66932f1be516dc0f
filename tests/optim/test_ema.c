// SPDX-License-Identifier: Apache-2.0
#include "optim/ema.h"

#include "ops/rig.h"

enum { SIZE = 1031 };

/* Weights of SIZE elements, plain or split, and their moving average. */
struct average {
    struct optimizer_config config;
    struct shard shard;
    struct optim o;
    float *weights;
};

static void open(struct average *a, bool split, double decay)
{
    *a = (struct average){.config = {.ema_decay = decay}, .shard = {.elements = SIZE}};
    a->weights = rig_random(1, SIZE, F32);
    a->o = (struct optim){.config = &a->config,
                          .shard = &a->shard,
                          .weights = split ? NULL : a->weights,
                          .copy = rig_zeros(SIZE, BF16),
                          .copy_dtype = BF16,
                          .split = split,
                          .low = rig_zeros(SIZE, BF16),
                          .ema = rig_random(2, SIZE, F32)};
}

static void close(struct average *a)
{
    free(a->weights);
    free(a->o.copy), free(a->o.low), free(a->o.ema);
}

/* Changes the weights, as an optimizer does. */
static void set_weights(struct average *a, uint64_t seed)
{
    float *next = rig_random(seed, SIZE, F32);
    bf16 *half = a->o.copy;
    for (int i = 0; i < SIZE; i++) {
        a->weights[i] = next[i];
        split_from_f32(next[i], &half[i], &a->o.low[i]);
    }
    free(next);
}

OPS_TEST(ema_follows_plain_and_split_weights)
{
    for (int split = 0; split < 2; split++) {
        static double want[SIZE];
        struct average a;
        open(&a, split, 0.9);
        set_weights(&a, 3);
        RIG_RUN(ema_start(&a.o, rig_fast(), rig_queue()));
        CHECK(!memcmp(a.o.ema, a.weights, SIZE * sizeof *a.weights));
        for (int i = 0; i < SIZE; i++) want[i] = (double)a.weights[i];
        for (uint64_t step = 0; step < 5; step++) {
            set_weights(&a, 4 + step);
            RIG_RUN(ema_step(&a.o, rig_fast(), rig_queue()));
            for (int i = 0; i < SIZE; i++) {
                want[i] = 0.9 * want[i] + 0.1 * (double)a.weights[i];
                CHECK(fabs((double)a.o.ema[i] - want[i]) <= 1e-6);
            }
        }
        close(&a);
    }
}

OPS_TEST(ema_of_split_weights_has_the_bits_of_plain_weights)
{
    struct average a, b;
    open(&a, false, 0.999), open(&b, true, 0.999);
    set_weights(&a, 3), set_weights(&b, 3);
    RIG_RUN(ema_step(&a.o, rig_fast(), rig_queue()));
    RIG_RUN(ema_step(&b.o, rig_fast(), rig_queue()));
    CHECK(!memcmp(a.o.ema, b.o.ema, SIZE * sizeof *a.o.ema));
    close(&a), close(&b);
}
