// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/decode.h"

enum { ROWS = 2, TOKENS = 11 };

static double negative_log_likelihood(const float *logits, int V, int label)
{
    double max = logits[0], sum = 0;
    for (int i = 1; i < V; i++) max = fmax(max, logits[i]);
    for (int i = 0; i < V; i++) sum += exp(logits[i] - max);
    return max + log(sum) - logits[label];
}

/* Packs tokens [first, first + T) of every row. */
static void gather(const struct rig *r, int first, int T, int32_t *ids)
{
    for (int row = 0; row < ROWS; row++)
        for (int t = 0; t < T; t++) ids[row * T + t] = r->ids[row * TOKENS + first + t];
}

/* Decodes in runs of tokens and compares each last position with the forward of the whole row. */
static void check_decode(const int *runs, enum dtype dtype, struct model_shape s, double tolerance)
{
    struct rig r;
    struct kv_cache c;
    struct arena none = {0}, room;
    float logits[ROWS * 37];
    int32_t ids[ROWS * TOKENS];
    rig_open(&r, &s, dtype, ROWS, TOKENS);
    for (int i = 0; i < ROWS * TOKENS; i++) r.labels[i] = i % s.V;
    rig_run(&r, single_stage_evaluate);
    CHECK_STATUS(OK, arena_init(&room, 1 << 16, NULL));
    CHECK_STATUS(OK, decode_init_cache(&c, &r.m, ROWS, TOKENS, &room));
    for (int i = 0, first = 0; runs[i]; first += runs[i++]) {
        struct model m = r.m;
        struct kv_cache empty = {ROWS, TOKENS, {first, first}, NULL, NULL};
        m.queue = r.sizing, m.weights = NULL, none.peak = 0;
        CHECK_STATUS(OK, decode_next(&m, &empty, &(struct decode_io){.T = runs[i]}, &none));
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, none.peak, NULL));
        gather(&r, first, runs[i], ids);
        struct decode_io io = {ids, runs[i], logits, NULL, 0};
        CHECK_STATUS(OK, decode_next(&r.m, &c, &io, &r.step));
        CHECK(r.step.peak == r.step.size && c.length[0] == first + runs[i]);
        for (int row = 0; row < ROWS; row++) {
            int at = row * TOKENS + c.length[row] - 1;
            double loss = negative_log_likelihood(logits + row * s.V, s.V, r.labels[at]);
            CHECK_NEAR(loss, r.loss[at], tolerance);
        }
    }
    struct decode_io more = {ids, 1, logits, NULL, 0};
    CHECK_STATUS(SHAPE, decode_next(&r.m, &c, &more, &r.step));
    CHECK_MESSAGE("the KV cache holds 11 of 11");
    arena_release(&room);
    rig_close(&r);
}

TEST(decoding_token_by_token_matches_the_forward_of_the_row)
{
    struct model_shape s = rig_shape();
    for (int i = 0; i < 5; i++) {
        s.window = i == 3 ? 4 : 0, s.mlp_bias = i == 2;
        s.qk_norm = i == 1 || i == 4, s.post_norm = i == 4;
        s.qkv_bias = s.out_bias = s.mlp_bias;
        check_decode((const int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, F32, s, 2e-6);
    }
}

TEST(decoding_with_multipliers_or_other_rope_matches_the_forward_of_the_row)
{
    struct model_shape s = rig_shape(), tied;
    s.no_rope_interval = 2;
    check_decode((const int[]){6, 1, 1, 3, 0}, F32, s, 2e-6);
    s.no_rope_interval = 0, s.partial_rotary_factor = 0.5;
    check_decode((const int[]){6, 1, 1, 3, 0}, F32, s, 2e-6);
    s.partial_rotary_factor = 0;
    model_shape_set_multipliers(&s, 3, 0.7, 0.31, 1.7);
    tied = s, tied.tied = true;
    check_decode((const int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, F32, s, 2e-6);
    check_decode((const int[]){6, 1, 1, 3, 0}, F32, tied, 2e-6);
    check_decode((const int[]){6, 1, 1, 3, 0}, BF16, s, 2e-2);
}

TEST(decoding_after_prefill_matches_the_forward_of_the_row)
{
    struct model_shape s = rig_shape(), tied = s;
    tied.tied = true;
    for (int i = 0; i < 5; i++) {
        s.window = tied.window = i == 3 ? 4 : 0;
        s.qk_norm = tied.qk_norm = i == 1 || i == 4, s.mlp_bias = i == 2;
        s.post_norm = tied.post_norm = i == 4;
        s.qkv_bias = s.out_bias = s.mlp_bias;
        check_decode((const int[]){6, 1, 1, 3, 0}, F32, s, 2e-6);
        check_decode((const int[]){6, 1, 1, 3, 0}, F32, tied, 2e-6);
        check_decode((const int[]){6, 1, 1, 3, 0}, BF16, s, 2e-2);
    }
}

TEST(prompt_in_chunks_has_the_logits_of_the_forward_of_the_row)
{
    static const int chunks[] = {1, 4, TOKENS, 100};
    struct model_shape s = rig_shape();
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct rig r;
        struct kv_cache c;
        struct arena room;
        float logits[37];
        rig_open(&r, &s, F32, ROWS, TOKENS);
        for (int t = 0; t < ROWS * TOKENS; t++) r.labels[t] = t % s.V;
        rig_run(&r, single_stage_evaluate);
        CHECK_STATUS(OK, arena_init(&room, 1 << 16, NULL));
        CHECK_STATUS(OK, decode_init_cache(&c, &r.m, ROWS, TOKENS, &room));
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, 1 << 16, NULL));
        struct decode_prompt p = {r.ids + TOKENS, TOKENS, 1, chunks[i], logits};
        CHECK_STATUS(OK, decode_prefill(&r.m, &c, &p, &r.step));
        CHECK(c.length[0] == 0 && c.length[1] == TOKENS);
        int last = 2 * TOKENS - 1;
        CHECK_NEAR(negative_log_likelihood(logits, s.V, r.labels[last]), r.loss[last], 2e-6);
        p.N = 1;
        CHECK_STATUS(SHAPE, decode_prefill(&r.m, &c, &p, &r.step));
        arena_release(&room);
        rig_close(&r);
    }
}

/* A text's last chunk can have any length, and T = 8 can need more memory than T = 9. */
TEST(a_step_sized_for_chunks_fits_one_of_any_length)
{
    enum { CAPACITY = 40, CHUNK = 30 };
    struct model_shape s = rig_shape();
    for (int dtype = F32; dtype <= BF16; dtype++) {
        struct rig r;
        struct kv_cache c;
        struct arena none = {0}, room;
        float logits[37];
        int32_t ids[CHUNK] = {0};
        const struct ops *fast;
        rig_open(&r, &s, (enum dtype)dtype, 1, CAPACITY);
        CHECK_STATUS(OK, cpu_ops_find("auto", &fast));
        r.m.ops = fast;
        struct model m = r.m;
        struct kv_cache empty = {1, CAPACITY, {0}, NULL, NULL};
        m.queue = r.sizing, m.weights = NULL;
        arena_release(&r.sizing->scratch);
        CHECK_STATUS(OK, decode_size_chunks(&m, &empty, CHUNK, &none));
        arena_release(&r.queue->scratch);
        CHECK_STATUS(OK, arena_init(&r.queue->scratch, r.sizing->scratch.peak, NULL));
        CHECK(empty.length[0] == 0);
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, none.peak, NULL));
        CHECK_STATUS(OK, arena_init(&room, 1 << 18, NULL));
        CHECK_STATUS(OK, decode_init_cache(&c, &r.m, 1, CAPACITY, &room));
        for (int T = 1; T <= CHUNK; T++)
            for (c.length[0] = 0; c.length[0] + T <= CAPACITY;) {
                struct decode_io io = {ids, T, logits, NULL, 0};
                CHECK_STATUS(OK, decode_next(&r.m, &c, &io, &r.step)); /* else a BUG */
            }
        arena_release(&room);
        rig_close(&r);
    }
}

TEST(masked_logits_match_the_bidirectional_forward)
{
    struct model_shape s = rig_shape();
    const int32_t positions[] = {9, 0, 4};
    for (int dtype = F32; dtype <= BF16; dtype++) {
        struct rig r;
        struct kv_cache c;
        struct arena room;
        float logits[3 * 37];
        rig_open(&r, &s, (enum dtype)dtype, 1, TOKENS);
        for (int i = 0; i < TOKENS; i++) r.labels[i] = i % s.V;
        r.b.causal = false;
        rig_run(&r, single_stage_evaluate);
        CHECK_STATUS(OK, arena_init(&room, 1 << 16, NULL));
        CHECK_STATUS(OK, decode_init_cache(&c, &r.m, 1, TOKENS, &room));
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, 1 << 16, NULL));
        struct decode_masked_io io = {r.ids, TOKENS, positions, 3, logits};
        CHECK_STATUS(OK, decode_masked(&r.m, &c, &io, &r.step));
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(negative_log_likelihood(logits + i * s.V, s.V, r.labels[positions[i]]),
                       r.loss[positions[i]], dtype == F32 ? 2e-6 : 2e-2);
        io.T = 9;
        CHECK_STATUS(SHAPE, decode_masked(&r.m, &c, &io, &r.step));
        CHECK_MESSAGE("position 9 is outside the row of 9 tokens");
        io.T = TOKENS + 1;
        CHECK_STATUS(SHAPE, decode_masked(&r.m, &c, &io, &r.step));
        arena_release(&room);
        rig_close(&r);
    }
}

TEST(kv_cache_must_fit_the_model)
{
    struct model_shape s = rig_shape();
    struct rig r;
    struct kv_cache c;
    rig_open(&r, &s, F32, 1, 4);
    CHECK_STATUS(SHAPE, decode_init_cache(&c, &r.m, 1, 5, &r.run));
    CHECK_MESSAGE("5 tokens");
    CHECK_STATUS(SHAPE, decode_init_cache(&c, &r.m, 0, 4, &r.run));
    CHECK_STATUS(OK, decode_init_cache(&c, &r.m, 1, 4, &r.run));
    CHECK_STATUS(SHAPE, decode_next(&r.m, &c, &(struct decode_io){.ids_RT = r.ids}, &r.step));
    rig_close(&r);
}
