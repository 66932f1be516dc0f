// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_buckets.h"

#include "test.h"

#include <stdlib.h>

/* Two layers on 2 pipeline ranks of 2 tensor-parallel ranks each. */
static const struct megatron_state state = {
    .has_args = true,
    .shape = {.V = 8, .D = 4, .L = 2, .H = 2, .G = 2, .K = 2, .F = 4},
    .padded_vocab = 8,
    .tp = 2,
    .pp = 2,
    .chunks = 1,
};
static const struct megatron_sizes sizes = {.L = 2, .H = 2, .G = 2, .K = 2, .F = 4};

enum { EMBED, NORM, PROJ, QKV, MLP_NORM, FC1, FC2, LAST_NORM, HEAD, KINDS };
static const int64_t elements[KINDS] = {16, 4, 8, 24, 4, 16, 8, 4, 16};
static const int plain[2][8] = {{FC2, FC1, MLP_NORM, QKV, PROJ, NORM, EMBED, -1},
                                {HEAD, LAST_NORM, FC2, FC1, MLP_NORM, QKV, PROJ, NORM}};
static const int fused[2][8] = {{FC2, FC1, MLP_NORM, QKV, NORM, PROJ, EMBED, -1},
                                {HEAD, LAST_NORM, FC2, FC1, MLP_NORM, QKV, NORM, PROJ}};

/* Element e of parameter k of the rank. */
static float value_of(int group, int k, int64_t e)
{
    return (float)(1000 * group + 100 * k) + (float)e;
}

/* A bucket's values, and the pieces that are cut from them. */
struct made {
    float values[4][600];
    struct megatron_buckets buckets;
};

static void add_piece(struct made *m, int group, int64_t from, int64_t to)
{
    const struct bucket_piece p = {
        .group = group,
        .offset = from,
        .tensor = {.name = heap_string("bucket", 6),
                   .dtype = SAFETENSORS_F32,
                   .num_dims = 1,
                   .shape = {to - from},
                   .strides = {1},
                   .data = (const unsigned char *)&m->values[group][from]},
    };
    megatron_buckets_add(&m->buckets, &p);
}

/* Adds [from, to), cut at multiples of `shard`. */
static void add_pieces(struct made *m, int group, int64_t from, int64_t to, int64_t shard)
{
    for (int64_t end; from < to; from = end) {
        end = shard ? (from / shard + 1) * shard : to;
        if (end > to) end = to;
        add_piece(m, group, from, end);
    }
}

/* One bucket for each rank, with the parameters in this order, cut for data-parallel ranks that
 * have `shard` elements each. */
static struct made *make(const int order[2][8], int64_t shard)
{
    struct made *m = heap(sizeof *m);
    for (int group = 0; group < 4; group++) {
        const int *kinds = order[group / 2];
        size_t first = m->buckets.count;
        int64_t end = 0;
        for (int i = 0; i < 8 && kinds[i] >= 0; i++) {
            int64_t start = (end + 63) / 64 * 64;
            add_pieces(m, group, end, start, shard);
            end = start + elements[kinds[i]];
            for (int64_t e = 0; e < elements[kinds[i]]; e++)
                m->values[group][start + e] = value_of(group, kinds[i], e);
            add_pieces(m, group, start, end, shard);
        }
        for (size_t i = first; i < m->buckets.count; i++) m->buckets.all[i].total = end;
    }
    return m;
}

static void release(struct made *m)
{
    megatron_buckets_release(&m->buckets);
    free(m);
}

static enum status place(struct made *m, const struct megatron_state *s,
                         struct tensor_slices *slices)
{
    *slices = (struct tensor_slices){.path = heap_string("iter_3", 6)};
    enum status st = megatron_buckets_place(&m->buckets, MEGATRON_EXP_AVG, s, &sizes, slices);
    if (!st) st = tensor_slices_finish(slices);
    if (st) tensor_slices_release(slices);
    return st;
}

static bool has(const struct tensor_slices *s, enum param_id id, int layer, size_t at, float value)
{
    const struct tensor_name name = {id, layer, TENSOR_EXP_AVG};
    const struct sliced_tensor *t = tensor_slices_find(s, &name);
    float got;
    CHECK(t);
    CHECK_STATUS(OK, tensor_slices_read(s, t, at, 1, &got));
    return got >= value && got <= value;
}

TEST(buckets_hold_parameters_from_the_last_to_the_first)
{
    static const int64_t shards[] = {0, 8, 16, 128, 192, 512};
    for (size_t i = 0; i < 2 * sizeof shards / sizeof *shards; i++) {
        struct made *m = make(i % 2 ? fused : plain, shards[i / 2]);
        struct tensor_slices s;
        CHECK_STATUS(OK, place(m, &state, &s));
        CHECK(s.count == 2 * 9 + 3);
        CHECK(has(&s, PARAM_embed, -1, 17, value_of(1, EMBED, 1)));
        CHECK(has(&s, PARAM_head, -1, 15, value_of(2, HEAD, 15)));
        CHECK(has(&s, PARAM_last_norm, -1, 3, value_of(2, LAST_NORM, 3)));
        CHECK(has(&s, PARAM_attn_norm, 1, 2, value_of(2, NORM, 2)));
        CHECK(has(&s, PARAM_mlp_norm, 0, 2, value_of(0, MLP_NORM, 2)));
        /* a rank has the q, k and v of one group; two columns of proj; two rows of either half */
        CHECK(has(&s, PARAM_attn_q, 1, 8 + 5, value_of(3, QKV, 5)));
        CHECK(has(&s, PARAM_attn_k, 0, 8 + 5, value_of(1, QKV, 8 + 5)));
        CHECK(has(&s, PARAM_attn_v, 0, 5, value_of(0, QKV, 16 + 5)));
        CHECK(has(&s, PARAM_attn_out, 0, 4 * 3 + 2 + 1, value_of(1, PROJ, 7)));
        CHECK(has(&s, PARAM_mlp_gate, 1, 4 * 3 + 1, value_of(3, FC1, 4 + 1)));
        CHECK(has(&s, PARAM_mlp_up, 1, 4 * 2 + 1, value_of(3, FC1, 8 + 1)));
        CHECK(has(&s, PARAM_mlp_up, 0, 3, value_of(0, FC1, 8 + 3)));
        CHECK(has(&s, PARAM_mlp_down, 0, 4 * 2, value_of(0, FC2, 4)));
        tensor_slices_release(&s);
        release(m);
    }
}

TEST(buckets_in_another_order_are_unsupported)
{
    static const int orders[][2][8] = {
        {{FC1, FC2, MLP_NORM, QKV, PROJ, NORM, EMBED, -1},
         {HEAD, LAST_NORM, FC2, FC1, MLP_NORM, QKV, PROJ, NORM}},
        {{FC2, FC1, MLP_NORM, QKV, PROJ, NORM, EMBED, -1},
         {LAST_NORM, HEAD, FC2, FC1, MLP_NORM, QKV, PROJ, NORM}},
        {{FC2, FC1, MLP_NORM, QKV, PROJ, NORM, EMBED, HEAD},
         {HEAD, LAST_NORM, FC2, FC1, MLP_NORM, QKV, PROJ, NORM}},
        {{FC2, FC1, MLP_NORM, QKV, PROJ, NORM, EMBED, -1}, /* one norm before, the other after */
         {HEAD, LAST_NORM, FC2, FC1, MLP_NORM, QKV, NORM, PROJ}},
    };
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (int64_t shard = 0; shard <= 128; shard += 64) {
            struct made *m = make(orders[i], shard);
            struct tensor_slices s;
            CHECK_STATUS(UNSUPPORTED, place(m, &state, &s));
            CHECK_MESSAGE("iter_3: the optimizer's buckets: ");
            release(m);
        }
}

TEST(arguments_that_do_not_fit_the_buckets_are_unsupported)
{
    struct megatron_state other[] = {state, state, state, state, state, state};
    struct made *m = make(plain, 128);
    struct tensor_slices s;
    other[0].tp = 1;
    other[1].pp = 1;
    other[2].chunks = 2;
    other[3].padded_vocab = 16;
    other[4].shape.qk_norm = true;
    other[5].has_args = false;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        CHECK_STATUS(UNSUPPORTED, place(m, &other[i], &s));
    CHECK_MESSAGE("the checkpoint has no args");
    release(m);
}

/* Cuts at 8 and 20 are not those of equal shards. */
TEST(pieces_within_a_parameter_are_equal_shards)
{
    struct made *m = make(plain, 8);
    struct tensor_slices s;
    CHECK_STATUS(OK, place(m, &state, &s));
    tensor_slices_release(&s);
    size_t i = 0;
    while (m->buckets.all[i].offset != 3 * 64 + 8) i++; /* QKV's second piece of rank 0 */
    CHECK(m->buckets.all[i].group == 0 && m->buckets.all[i + 1].offset == 3 * 64 + 16);
    m->buckets.all[i].tensor.shape[0] += 4;
    m->buckets.all[i + 1].tensor.shape[0] -= 4, m->buckets.all[i + 1].offset += 4;
    CHECK_STATUS(UNSUPPORTED, place(m, &state, &s));
    release(m);
}

TEST(pieces_must_cover_their_bucket)
{
    for (int bad = 0; bad < 5; bad++) {
        struct made *m = make(plain, 128);
        struct bucket_piece *p = &m->buckets.all[3];
        struct tensor_slices s;
        if (bad == 0) p->offset++;
        if (bad == 1) p->tensor.shape[0] = INT64_MAX;
        if (bad == 2) p->total = INT64_MAX;
        if (bad == 3) p->tensor.shape[0] = 0;
        for (size_t i = 0; bad == 4 && i < m->buckets.count; i++)
            m->buckets.all[i].total = INT64_MAX;
        CHECK_STATUS(DATA, place(m, &state, &s));
        release(m);
    }
}

TEST(names_of_buckets_are_parsed)
{
#define NAME                                                                                       \
    "optimizer.distributed.dp_group_idx_12.gbuf_idx_1.dtype_(torch.bfloat16, torch.float32)."
    struct bucket_piece p;
    enum megatron_source source;
    CHECK(megatron_buckets_parse(NAME "bucket_idx_30.exp_avg_sq", &p, &source));
    CHECK(p.group == 12 && p.buffer == 1 && p.bucket == 30 && source == MEGATRON_EXP_AVG_SQ);
    CHECK(megatron_buckets_parse("chained_0." NAME "bucket_idx_0.param", &p, &source));
    CHECK(source == MEGATRON_FP32);
    CHECK(!megatron_buckets_parse("chained_1." NAME "bucket_idx_0.param", &p, &source));
    CHECK(!megatron_buckets_parse(NAME "bucket_idx_0.momentum_buffer", &p, &source));
    CHECK(!megatron_buckets_parse(NAME "bucket_idx_.param", &p, &source));
    CHECK(!megatron_buckets_parse(NAME "bucket_idx_1234567.param", &p, &source));
    CHECK(!megatron_buckets_parse("optimizer.state.exp_avg.x", &p, &source));
}
