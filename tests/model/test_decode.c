// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/decode.h"

enum { ROWS = 3, TOKENS = 11 };

static double negative_log_likelihood(const float *logits, int V, int label)
{
    double max = logits[0], sum = 0;
    for (int i = 1; i < V; i++) max = fmax(max, logits[i]);
    for (int i = 0; i < V; i++) sum += exp(logits[i] - max);
    return max + log(sum) - logits[label];
}

/* New tokens of each row in a pass; 0: the row has none. */
typedef int pass[ROWS];

static const pass tokens_one_by_one[] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1},
                                         {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1},
                                         {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}};
static const pass prompts_then_tokens[] = {{6, 6, 6}, {1, 1, 1}, {1, 1, 1}, {3, 3, 3}, {0}};
/* Neighbors with a token each before and after a row with several, alone, and apart. */
static const pass ragged[] = {{4, 1, 1}, {1, 1, 6}, {0, 5, 1}, {1, 0, 1}, {5, 4, 2}, {0}};

/* The rows of a pass; returns how many. */
static int fill_rows(const struct rig *r, const struct kv_cache *c, const int *tokens, bool reverse,
                     struct decode_row *rows)
{
    int R = 0;
    for (int i = 0; i < ROWS; i++) {
        int row = reverse ? ROWS - 1 - i : i;
        if (tokens[row])
            rows[R++] =
                (struct decode_row){row, tokens[row], r->ids + row * TOKENS + c->length[row]};
    }
    return R;
}

/* Decodes in passes and compares each last position with the forward of the whole row. */
static void check_decode(const pass *passes, enum dtype dtype, struct model_shape s,
                         double tolerance)
{
    struct rig r;
    struct kv_cache c;
    struct arena none = {0}, room;
    float logits[ROWS * 37];
    rig_open(&r, &s, dtype, ROWS, TOKENS);
    for (int i = 0; i < ROWS * TOKENS; i++) r.labels[i] = i % s.V;
    rig_run(&r, single_stage_evaluate);
    CHECK_STATUS(OK, arena_init(&room, 1 << 16, NULL));
    CHECK_STATUS(OK, decode_init_cache(&c, &r.m, ROWS, TOKENS, &room));
    for (int i = 0; passes[i][0] + passes[i][1]; i++) {
        struct model m = r.m;
        struct kv_cache empty = c;
        struct decode_row rows[ROWS];
        struct decode_io io = {rows, fill_rows(&r, &c, passes[i], i % 2, rows), logits};
        m.queue = r.sizing, m.weights = NULL, none.peak = 0;
        CHECK_STATUS(OK, decode_next(&m, &empty, &io, &none));
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, none.peak, NULL));
        CHECK_STATUS(OK, decode_next(&r.m, &c, &io, &r.step));
        CHECK(r.step.peak == r.step.size && !memcmp(c.length, empty.length, sizeof c.length));
        for (int k = 0; k < io.R; k++) {
            int at = rows[k].index * TOKENS + c.length[rows[k].index] - 1;
            double loss = negative_log_likelihood(logits + k * s.V, s.V, r.labels[at]);
            CHECK_NEAR(loss, r.loss[at], tolerance);
        }
    }
    for (int row = 0; row < ROWS; row++) CHECK(c.length[row] == TOKENS);
    struct decode_io more = {&(struct decode_row){1, 1, r.ids}, 1, logits};
    CHECK_STATUS(SHAPE, decode_next(&r.m, &c, &more, &r.step));
    CHECK_MESSAGE("cannot append 1 tokens to row 1: the KV cache holds 11 of 11");
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
        check_decode(tokens_one_by_one, F32, s, 2e-6);
    }
}

TEST(decoding_with_multipliers_or_other_rope_matches_the_forward_of_the_row)
{
    struct model_shape s = rig_shape(), tied;
    s.no_rope_interval = 2;
    check_decode(prompts_then_tokens, F32, s, 2e-6);
    s.no_rope_interval = 0, s.partial_rotary_factor = 0.5;
    check_decode(prompts_then_tokens, F32, s, 2e-6);
    s.partial_rotary_factor = 0;
    model_shape_set_multipliers(&s, 3, 0.7, 0.31, 1.7);
    tied = s, tied.tied = true;
    check_decode(tokens_one_by_one, F32, s, 2e-6);
    check_decode(prompts_then_tokens, F32, tied, 2e-6);
    check_decode(prompts_then_tokens, BF16, s, 2e-2);
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
        check_decode(prompts_then_tokens, F32, s, 2e-6);
        check_decode(prompts_then_tokens, F32, tied, 2e-6);
        check_decode(prompts_then_tokens, BF16, s, 2e-2);
        check_decode(ragged, F32, s, 2e-6);
        check_decode(ragged, BF16, tied, 2e-2);
    }
    s = rig_shape(), s.no_rope_interval = 2;
    check_decode(ragged, F32, s, 2e-6);
    s = rig_shape(), s.partial_rotary_factor = 0.5;
    check_decode(ragged, F32, s, 2e-6);
    s = rig_shape(), model_shape_set_multipliers(&s, 3, 0.7, 0.31, 1.7);
    check_decode(ragged, F32, s, 2e-6);
}

/* Rows of 3, 11 and 6 tokens: passes of 4 split all of them. */
TEST(prompts_in_chunks_have_the_logits_of_the_forward_of_their_rows)
{
    static const int chunks[] = {1, 4, TOKENS, 100}, lengths[ROWS] = {3, TOKENS, 6};
    struct model_shape s = rig_shape();
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct rig r;
        struct kv_cache c;
        struct arena room;
        struct decode_row rows[ROWS];
        float logits[ROWS * 37];
        rig_open(&r, &s, F32, ROWS, TOKENS);
        for (int t = 0; t < ROWS * TOKENS; t++) r.labels[t] = t % s.V;
        rig_run(&r, single_stage_evaluate);
        CHECK_STATUS(OK, arena_init(&room, 1 << 16, NULL));
        CHECK_STATUS(OK, decode_init_cache(&c, &r.m, ROWS, TOKENS, &room));
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, 1 << 16, NULL));
        struct decode_io io = {rows, fill_rows(&r, &c, lengths, true, rows), logits};
        CHECK_STATUS(OK, decode_prefill(&r.m, &c, &io, chunks[i], &r.step));
        for (int k = 0; k < ROWS; k++) {
            int row = rows[k].index, last = row * TOKENS + lengths[row] - 1;
            double loss = negative_log_likelihood(logits + k * s.V, s.V, r.labels[last]);
            CHECK_NEAR(loss, r.loss[last], 2e-6);
            CHECK(c.length[row] == lengths[row]);
        }
        io = (struct decode_io){&(struct decode_row){1, 1, r.ids}, 1, logits};
        CHECK_STATUS(SHAPE, decode_prefill(&r.m, &c, &io, chunks[i], &r.step));
        struct decode_row twice[] = {{0, 1, r.ids}, {0, 1, r.ids}};
        io = (struct decode_io){twice, 2, logits};
        CHECK_STATUS(SHAPE, decode_prefill(&r.m, &c, &io, chunks[i], &r.step));
        CHECK(c.length[0] == lengths[0]);
        arena_release(&room);
        rig_close(&r);
    }
}

/* A text's last chunk can have any length, and T = 8 can need more memory than T = 9. */
TEST(a_step_of_sized_tokens_fits_them_in_any_rows)
{
    enum { CAPACITY = 25, MOST = 60 };
    struct model_shape s = rig_shape();
    for (int dtype = F32; dtype <= BF16; dtype++) {
        struct rig r;
        struct kv_cache c;
        struct arena none = {0}, room;
        float logits[ROWS * 37];
        int32_t ids[CAPACITY] = {0};
        const struct ops *fast;
        rig_open(&r, &s, (enum dtype)dtype, 1, CAPACITY);
        CHECK_STATUS(OK, cpu_ops_find("auto", &fast));
        r.m.ops = fast;
        struct model m = r.m;
        struct kv_cache empty = {.B = ROWS, .capacity = CAPACITY};
        m.queue = r.sizing, m.weights = NULL;
        arena_release(&r.sizing->scratch);
        CHECK_STATUS(OK, decode_size(&m, &empty, MOST, &none));
        CHECK_STATUS(SHAPE, decode_size(&m, &empty, empty.B * empty.capacity + 1, &none));
        arena_release(&r.queue->scratch);
        CHECK_STATUS(OK, arena_init(&r.queue->scratch, r.sizing->scratch.peak, NULL));
        CHECK(empty.length[0] == 0 && empty.length[ROWS - 1] == 0);
        arena_release(&r.step);
        CHECK_STATUS(OK, arena_init(&r.step, none.peak, NULL));
        CHECK_STATUS(OK, arena_init(&room, 1 << 18, NULL));
        CHECK_STATUS(OK, decode_init_cache(&c, &r.m, ROWS, CAPACITY, &room));
        for (int N = 1; N <= MOST; N++)
            for (int R = (N + CAPACITY - 1) / CAPACITY; R <= ROWS && R <= N; R++)
                for (int most = 0; most < 2; most++) { /* the first row has the most tokens */
                    struct decode_row rows[ROWS];
                    struct decode_io io = {rows, R, logits};
                    for (int i = 0, left = N; i < R; left -= rows[i++].T) {
                        int others = R - 1 - i, T = most ? left - others : left / (R - i);
                        rows[i] = (struct decode_row){i, T < CAPACITY ? T : CAPACITY, ids};
                        c.length[i] = (CAPACITY - rows[i].T) * (N % 3) / 2;
                    }
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
    rig_close(&r);
}

TEST(decoding_requires_tokens_in_different_rows_of_the_cache)
{
    static const struct {
        struct decode_row rows[3];
        int R;
        const char *message;
    } cases[] = {
        {{{0}}, 0, "cannot append to 0 rows of a KV cache of 2"},
        {{{0, 1, NULL}, {1, 1, NULL}, {0, 1, NULL}}, 3, "cannot append to 3 rows"},
        {{{0, 0, NULL}}, 1, "cannot append 0 tokens to row 0"},
        {{{1, 1, NULL}, {1, 1, NULL}}, 2, "row 1 of a KV cache of 2 rows: expected different rows"},
        {{{2, 1, NULL}}, 1, "row 2 of a KV cache of 2 rows"},
        {{{-1, 1, NULL}}, 1, "row -1 of a KV cache of 2 rows"},
    };
    struct model_shape s = rig_shape();
    struct rig r;
    struct kv_cache c;
    rig_open(&r, &s, F32, 1, 4);
    CHECK_STATUS(OK, decode_init_cache(&c, &r.m, 2, 4, &r.run));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct decode_io io = {cases[i].rows, cases[i].R, NULL};
        CHECK_STATUS(SHAPE, decode_next(&r.m, &c, &io, &r.step));
        CHECK_MESSAGE(cases[i].message);
    }
    rig_close(&r);
}
