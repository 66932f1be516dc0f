// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

enum { ROWS = 2, TOKENS = 11 };

static double negative_log_likelihood(const float *logits, int V, int label)
{
    double most = logits[0], sum = 0;
    for (int i = 1; i < V; i++) most = fmax(most, logits[i]);
    for (int i = 0; i < V; i++) sum += exp(logits[i] - most);
    return most + log(sum) - logits[label];
}

/* Tokens [first, first + T) of every row, side by side. */
static void gather(const struct rig *r, int first, int T, int32_t *ids)
{
    for (int row = 0; row < ROWS; row++)
        for (int t = 0; t < T; t++) ids[row * T + t] = r->ids[row * TOKENS + first + t];
}

/* Decodes in pieces and compares each last position with the whole row's forward. */
static void decode_in(const int *pieces, enum dtype dtype, bool tied, double tolerance)
{
    struct model_shape s = rig_shape();
    struct rig r;
    struct kv_cache c;
    struct arena none = {0}, room;
    float logits[ROWS * 37];
    int32_t ids[ROWS * TOKENS];
    s.tied = tied;
    rig_open(&r, &s, dtype, ROWS, TOKENS);
    for (int i = 0; i < ROWS * TOKENS; i++) r.labels[i] = i % s.V;
    rig_run(&r, model_evaluate);
    CHECK_STATUS(OK, arena_init(&room, 1 << 16, NULL));
    CHECK_STATUS(OK, kv_cache_init(&c, &r.m, ROWS, TOKENS, &room));
    for (int i = 0, first = 0; pieces[i]; first += pieces[i++]) {
        struct model m = r.m;
        struct kv_cache empty = {ROWS, TOKENS, first, NULL, NULL};
        m.on = r.measuring, m.weights = NULL, none.peak = 0;
        CHECK_STATUS(OK, model_decode(&m, &empty, NULL, pieces[i], NULL, &none));
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, none.peak, NULL));
        gather(&r, first, pieces[i], ids);
        CHECK_STATUS(OK, model_decode(&r.m, &c, ids, pieces[i], logits, &r.step));
        CHECK(r.step.peak == r.step.size && c.length == first + pieces[i]);
        for (int row = 0; row < ROWS; row++) {
            int at = row * TOKENS + c.length - 1;
            double loss = negative_log_likelihood(logits + row * s.V, s.V, r.labels[at]);
            CHECK_NEAR(loss, r.loss[at], tolerance);
        }
    }
    CHECK_STATUS(SHAPE, model_decode(&r.m, &c, ids, 1, logits, &r.step));
    CHECK_MESSAGE("the cache holds 11 of 11");
    arena_release(&room);
    rig_close(&r);
}

TEST(decoding_token_by_token_equals_the_forward_of_the_row)
{
    decode_in((const int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, F32, false, 2e-6);
}

TEST(decoding_after_a_prompt_equals_the_forward_of_the_row)
{
    decode_in((const int[]){6, 1, 1, 3, 0}, F32, false, 2e-6);
    decode_in((const int[]){6, 1, 1, 3, 0}, F32, true, 2e-6);
    decode_in((const int[]){6, 1, 1, 3, 0}, BF16, false, 2e-2);
}

TEST(filling_in_equals_the_forward_of_a_row_that_sees_both_sides)
{
    struct model_shape s = rig_shape();
    const int32_t places[] = {9, 0, 4};
    for (int dtype = F32; dtype <= BF16; dtype++) {
        struct rig r;
        struct kv_cache c;
        struct arena room;
        float logits[3 * 37];
        rig_open(&r, &s, (enum dtype)dtype, 1, TOKENS);
        for (int i = 0; i < TOKENS; i++) r.labels[i] = i % s.V;
        r.b.causal = false;
        rig_run(&r, model_evaluate);
        CHECK_STATUS(OK, arena_init(&room, 1 << 16, NULL));
        CHECK_STATUS(OK, kv_cache_init(&c, &r.m, 1, TOKENS, &room));
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, 1 << 16, NULL));
        CHECK_STATUS(OK, model_fill(&r.m, &c, r.ids, TOKENS, places, 3, logits, &r.step));
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(negative_log_likelihood(logits + i * s.V, s.V, r.labels[places[i]]),
                       r.loss[places[i]], dtype == F32 ? 2e-6 : 2e-2);
        CHECK_STATUS(SHAPE, model_fill(&r.m, &c, r.ids, 9, places, 3, logits, &r.step));
        CHECK_MESSAGE("place 9 of 9");
        CHECK_STATUS(SHAPE, model_fill(&r.m, &c, r.ids, TOKENS + 1, places, 3, logits, &r.step));
        arena_release(&room);
        rig_close(&r);
    }
}

TEST(a_cache_must_fit_the_model)
{
    struct model_shape s = rig_shape();
    struct rig r;
    struct kv_cache c;
    rig_open(&r, &s, F32, 1, 4);
    CHECK_STATUS(SHAPE, kv_cache_init(&c, &r.m, 1, 5, &r.run));
    CHECK_MESSAGE("5 tokens");
    CHECK_STATUS(SHAPE, kv_cache_init(&c, &r.m, 0, 4, &r.run));
    CHECK_STATUS(OK, kv_cache_init(&c, &r.m, 1, 4, &r.run));
    CHECK_STATUS(SHAPE, model_decode(&r.m, &c, r.ids, 0, NULL, &r.step));
    rig_close(&r);
}
