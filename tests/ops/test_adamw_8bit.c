// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw_8bit.h"

#include "ops/rig.h"
#include "tensor/blockwise.h"

enum { ROOM = 5000, BLOCKS = ROOM / BLOCKWISE_BLOCK + 2 };

/* Weights, moments and what the model reads, before or after an update. */
struct state {
    float *w, m_scale[BLOCKS], v_scale[BLOCKS];
    uint8_t m[ROOM], v[ROOM];
    bf16 *copy;
    uint16_t *low;
};

static struct adamw usual(size_t n, int64_t step)
{
    return (struct adamw){.n = n,
                          .lr = 1e-2,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .scale = 0.5,
                          .step = step};
}

static struct state *open_state(void)
{
    struct state *s = heap(sizeof *s);
    *s = (struct state){.w = rig_random(1, ROOM, F32), .copy = rig_zeros(2 * ROOM, BF16)};
    s->low = rig_zeros(ROOM, BF16);
    for (int i = 0; i < ROOM; i++) split_from_f32(s->w[i], &s->copy[ROOM + i], &s->low[i]);
    return s;
}

static void close_state(struct state *s) { free(s->w), free(s->copy), free(s->low), free(s); }

/* Runs the steps on elements [at, at + a.n); `split`: on the halves of the weights. */
static void run(const struct ops *ops, struct state *s, struct adamw a, size_t at, int steps)
{
    for (int step = 1; step <= steps; step++) {
        float *g = rig_random((uint64_t)step + 3, ROOM, F32);
        for (int i = 0; i < ROOM; i++) g[i] *= 1e-4f * (float)(1 + i % 90 * (i % 90));
        a.step = step;
        struct adamw_8bit op = {a};
        struct adamw_8bit_io io = {a.split ? NULL : s->w + at,
                                   s->m + at,
                                   s->v + at,
                                   s->m_scale + 1,
                                   s->v_scale + 1,
                                   g + at,
                                   a.split ? s->copy + ROOM + at : s->copy + at,
                                   a.split ? s->low + at : NULL};
        if (!a.split && a.copy_dtype == F32) io.copy_n = NULL;
        RIG_RUN(adamw_8bit(ops, &op, &io, rig_queue()));
        free(g);
    }
}

static void dequantize(const struct state *s, size_t n, size_t at, float *m, float *v)
{
    struct blockwise_map first, second;
    blockwise_map_init(&first, true), blockwise_map_init(&second, false);
    for (size_t b = 0; b < blockwise_num_blocks(n); b++) {
        size_t i = b * 256, size = n - i < 256 ? n - i : 256;
        blockwise_dequantize(&first, s->m + at + i, size, s->m_scale[b + 1], m + i);
        blockwise_dequantize(&second, s->v + at + i, size, s->v_scale[b + 1], v + i);
    }
}

/* Ranges of any alignment and length. */
static const size_t ranges[][2] = {{0, 0},    {0, 1},     {0, 255},  {1, 256},
                                   {16, 257}, {32, 4096}, {3, 4096}, {16, 4500}};
enum { RANGES = sizeof ranges / sizeof *ranges };

OPS_TEST(adamw_8bit_agrees_with_the_reference)
{
    for (size_t i = 0; i < 3 * RANGES; i++) {
        size_t at = ranges[i / 3][0], n = ranges[i / 3][1];
        struct adamw a = usual(n, 1);
        struct state *s[2] = {open_state(), open_state()};
        float *m[2], *v[2];
        a.copy_dtype = i % 3 ? BF16 : F32, a.split = i % 3 == 2;
        for (int k = 0; k < 2; k++) {
            run(k ? rig_fast() : &ops_cpu_reference, s[k], a, at, 3);
            m[k] = rig_zeros(ROOM, F32), v[k] = rig_zeros(ROOM, F32);
            dequantize(s[k], n, at, m[k], v[k]);
        }
        /* A last bit may change a code; that is rare. */
        rig_check_close("w", s[1]->w, s[0]->w, ROOM, F32, 1e-5);
        rig_check_close("copy", s[1]->copy, s[0]->copy, 2 * ROOM, BF16, 1e-3);
        rig_check_close("m", m[1], m[0], ROOM, F32, 1e-3);
        rig_check_close("v", v[1], v[0], ROOM, F32, 1e-3);
        CHECK(s[1]->m_scale[0] == 0 && s[1]->m_scale[1 + blockwise_num_blocks(n)] == 0);
        for (size_t k = 0; k < ROOM; k++)
            if (k < at || k >= at + n) CHECK(!s[1]->m[k] && !s[1]->v[k]);
        for (int k = 0; k < 2; k++) close_state(s[k]), free(m[k]), free(v[k]);
    }
}

OPS_TEST(adamw_8bit_updates_split_weights_bit_for_bit_as_float32_masters)
{
    struct state *s[2] = {open_state(), open_state()};
    struct adamw a = usual(4500, 1);
    a.copy_dtype = BF16;
    run(rig_fast(), s[0], a, 16, 3);
    a.split = true;
    run(rig_fast(), s[1], a, 16, 3);
    for (int i = 0; i < ROOM; i++)
        CHECK(split_to_f32(s[1]->copy[ROOM + i], s[1]->low[i]) == s[0]->w[i]);
    CHECK(!memcmp(s[0]->m, s[1]->m, ROOM) && !memcmp(s[0]->v, s[1]->v, ROOM));
    close_state(s[0]), close_state(s[1]);
}

/* The first step's moments are exact, so weights are those of adamw. */
OPS_TEST(adamw_8bit_updates_weights_with_moments_that_are_not_yet_quantized)
{
    enum { N = 1000 };
    struct state *s = open_state();
    float *w = rig_random(1, ROOM, F32), *m = rig_zeros(N, F32), *v = rig_zeros(N, F32);
    float *g = rig_random(7, N, F32), *back = rig_zeros(2 * N, F32);
    struct adamw a = usual(N, 1);
    struct adamw_io io = {w, m, v, g, NULL, NULL};
    struct adamw_8bit op = {a};
    struct adamw_8bit_io io8 = {s->w, s->m, s->v, s->m_scale + 1, s->v_scale + 1, g, NULL, NULL};
    RIG_RUN(adamw(rig_fast(), &a, &io, rig_queue()));
    RIG_RUN(adamw_8bit(rig_fast(), &op, &io8, rig_queue()));
    rig_check_close("w", s->w, w, ROOM, F32, 1e-6);
    dequantize(s, N, 0, back, back + N);
    for (int i = 0; i < N; i++) {
        double largest = fabs((double)s->m_scale[1 + i / 256]);
        CHECK(fabs((double)(back[i] - m[i])) <= 0.008 * largest);
        CHECK(fabs((double)(back[N + i] - v[i])) <= 0.004 * (double)s->v_scale[1 + i / 256]);
    }
    free(w), free(m), free(v), free(g), free(back), close_state(s);
}

/* The same bits as gradients of the same values in float32. */
OPS_TEST(adamw_8bit_takes_gradients_in_bfloat16)
{
    for (size_t i = 0; i < RANGES; i++) {
        size_t at = ranges[i][0], n = ranges[i][1];
        struct state *s[2] = {open_state(), open_state()};
        bf16 *narrow = rig_random(4, ROOM, BF16);
        float *wide = rig_zeros(ROOM, F32);
        for (int k = 0; k < ROOM; k++) wide[k] = bf16_to_f32(narrow[k]);
        for (int k = 0; k < 2; k++) {
            struct adamw_8bit a = {usual(n, 3)};
            a.adamw.gradients = k ? BF16 : F32;
            struct adamw_8bit_io io = {.w_n = s[k]->w + at,
                                       .m_n = s[k]->m + at,
                                       .v_n = s[k]->v + at,
                                       .m_scale = s[k]->m_scale,
                                       .v_scale = s[k]->v_scale,
                                       .g_n = k ? (void *)(narrow + at) : wide + at};
            RIG_RUN(adamw_8bit(rig_fast(), &a, &io, rig_queue()));
        }
        CHECK(!memcmp(s[0]->w, s[1]->w, ROOM * sizeof *s[0]->w));
        CHECK(!memcmp(s[0]->m, s[1]->m, ROOM) && !memcmp(s[0]->v, s[1]->v, ROOM));
        close_state(s[0]), close_state(s[1]), free(narrow), free(wide);
    }
}

TEST(adamw_8bit_rejects_step_zero_and_split_weights_with_a_float32_copy)
{
    struct adamw_8bit a = {{.n = 1}};
    CHECK_STATUS(SHAPE, adamw_8bit(&ops_cpu_reference, &a, NULL, rig_queue()));
    a.adamw.step = 1, a.adamw.split = true;
    CHECK_STATUS(SHAPE, adamw_8bit(&ops_cpu_reference, &a, NULL, rig_queue()));
}
