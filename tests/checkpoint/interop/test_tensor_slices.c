// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_slices.h"
#include "test.h"

TEST(meta_and_torchtitan_names_parse)
{
    static const struct {
        const char *name;
        struct tensor_name want;
    } names[] = {
        {"tok_embeddings.weight", {PARAM_embed, -1, TENSOR_WEIGHT}},
        {"model.layers.12.attention.wq.weight", {PARAM_attn_q, 12, TENSOR_WEIGHT}},
        {"layers.0.attention.qkv_linear.wv.weight", {PARAM_attn_v, 0, TENSOR_WEIGHT}},
        {"lm_head.weight", {PARAM_head, -1, TENSOR_WEIGHT}},
        {"model.output.weight", {PARAM_head, -1, TENSOR_WEIGHT}},
        {"optimizer.state.layers.3.ffn_norm.weight.exp_avg", {PARAM_mlp_norm, 3, TENSOR_EXP_AVG}},
        {"optimizer.state.model.norm.weight.exp_avg_sq", {PARAM_last_norm, -1, TENSOR_EXP_AVG_SQ}},
    };
    static const char *const others[] = {"layers.01.attention.wq.weight",
                                         "layers..ffn_norm.weight",
                                         "layers.99999999999.ffn_norm.weight",
                                         "norm",
                                         "",
                                         "layers.1.norm.weight",
                                         "norm.weight.exp_avg",
                                         "optimizer.state.norm.weight.step",
                                         "layers.1"};
    struct tensor_name got;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(tensor_name_parse(names[i].name, &got));
        CHECK(got.id == names[i].want.id && got.layer == names[i].want.layer);
        CHECK(got.kind == names[i].want.kind);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!tensor_name_parse(others[i], &got));
    CHECK(tensor_name_is_ignored("rope.freqs") && tensor_name_is_ignored("model.freqs_cis"));
    CHECK(tensor_name_is_ignored("optimizer.param_groups.norm.weight.lr"));
    CHECK(!tensor_name_is_ignored("norm.bias"));
}

TEST(current_torchtitan_names_round_trip)
{
    for (int id = 0; id < PARAM_COUNT; id++) {
        bool block = strstr(params[id].name, "%d") != NULL;
        const struct tensor_place t = {.id = (enum param_id)id, .layer = block ? 7 : -1};
        struct tensor_name got;
        char name[96];
        tensor_place_name(&t, false, name);
        char *newest = tensor_name_torchtitan(name);
        CHECK(tensor_name_parse(newest, &got) && got.id == t.id && got.layer == t.layer);
        bool renamed =
            id == PARAM_attn_q || id == PARAM_attn_k || id == PARAM_attn_v || id == PARAM_head;
        CHECK(renamed == (strcmp(newest, name) != 0));
        free(newest);
    }
}

/* q of two heads of size 4, with 3 columns: row r, column c is 10 r + c. */
static float numbers[8][3];

static void add_slice(struct tensor_slices *p, int64_t row, int64_t column, int64_t rows,
                      int64_t columns)
{
    const struct tensor_name q = {PARAM_attn_q, 0, TENSOR_WEIGHT};
    char name[] = "q";
    const struct torch_tensor t = {name,   SAFETENSORS_F32,
                                   2,      {rows, columns},
                                   {3, 1}, (const unsigned char *)&numbers[row][column],
                                   0};
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 3; c++) numbers[r][c] = (float)(10 * r + c);
    CHECK_STATUS(OK, tensor_slices_add(p, &q, &t, NULL, row, column));
}

static enum status finish(struct tensor_slices *p)
{
    p->path = heap_string("x", 1);
    return tensor_slices_finish(p);
}

TEST(slices_read_as_one_tensor_in_our_row_order)
{
    static const int rows[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    struct tensor_slices p = {0};
    float got[24];
    add_slice(&p, 0, 0, 3, 3), add_slice(&p, 3, 0, 5, 2), add_slice(&p, 3, 2, 5, 1);
    CHECK_STATUS(OK, finish(&p));
    const struct sliced_tensor *q =
        tensor_slices_find(&p, &(struct tensor_name){PARAM_attn_q, 0, 0});
    CHECK(q && q->rows == 8 && q->columns == 3);
    CHECK(!tensor_slices_find(&p, &(struct tensor_name){PARAM_attn_q, 1, 0}));
    for (int reordered = 0; reordered < 2; reordered++) {
        p.head_dim = reordered ? 4 : 0;
        for (size_t first = 0; first < 24; first++)
            for (size_t count = 1; count <= 24 - first; count++) {
                CHECK_STATUS(OK, tensor_slices_read(&p, q, first, count, got));
                for (size_t i = 0; i < count; i++) {
                    size_t r = (first + i) / 3, c = (first + i) % 3;
                    CHECK(got[i] == (float)(10 * (reordered ? rows[r] : (int)r) + (int)c));
                }
            }
    }
    tensor_slices_release(&p);
}

TEST(slices_with_gaps_or_overlaps_are_rejected)
{
    struct tensor_slices p = {0};
    float got[24];
    add_slice(&p, 0, 0, 3, 3), add_slice(&p, 4, 0, 4, 3);
    CHECK_STATUS(DATA, finish(&p));
    CHECK_MESSAGE("the 2 slices of layers.0.attention.wq.weight do not cover");
    tensor_slices_release(&p);
    add_slice(&p, 0, 0, 4, 3), add_slice(&p, 0, 0, 1, 3), add_slice(&p, 5, 0, 3, 3);
    CHECK_STATUS(OK, finish(&p)); /* the total area is right */
    CHECK_STATUS(DATA, tensor_slices_read(&p, &p.tensors[0], 0, 24, got));
    CHECK_MESSAGE("no slice of tensor");
    tensor_slices_release(&p);
}

TEST(slices_of_invalid_dtype_or_shape_are_rejected)
{
    const struct tensor_name norm = {PARAM_last_norm, -1, TENSOR_WEIGHT};
    char name[] = "norm.weight";
    struct tensor_slices p = {.path = heap_string("x", 1)};
    struct torch_tensor t = {name, SAFETENSORS_I64, 1, {8}, {1}, (const unsigned char *)numbers, 0};
    CHECK_STATUS(DATA, tensor_slices_add(&p, &norm, &t, NULL, 0, 0));
    CHECK_MESSAGE("norm.weight has 1 dimensions and dtype I64");
    t.dtype = SAFETENSORS_F32, t.num_dims = 0;
    CHECK_STATUS(DATA, tensor_slices_add(&p, &norm, &t, NULL, 0, 0));
    t.num_dims = 1, t.shape[0] = INT64_MAX;
    CHECK_STATUS(DATA, tensor_slices_add(&p, &norm, &t, NULL, 1, 0));
    CHECK_MESSAGE("invalid offset");
    tensor_slices_release(&p);
}
