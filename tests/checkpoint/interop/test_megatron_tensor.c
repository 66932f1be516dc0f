// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_tensor.h"

#include "test.h"

TEST(names_of_megatron_are_parsed)
{
    struct megatron_tensor n;
    CHECK(megatron_tensor_parse("module.embedding.word_embeddings.weight", &n));
    CHECK(n.source == MEGATRON_MODEL && n.layer == -1 && !n.is_stacked);
    CHECK(megatron_tensor_parse("decoder.layers.self_attention.linear_qkv.weight", &n));
    CHECK(n.is_stacked && megatron_tensor_dims(&n) == 2);
    CHECK(megatron_tensor_parse(
        "optimizer.state.exp_avg_sq.decoder.layers.12.mlp.linear_fc1.weight_v", &n));
    CHECK(n.source == MEGATRON_EXP_AVG_SQ && n.layer == 12 && !n.is_stacked && n.is_second_half);
    CHECK(!strncmp(n.key, "decoder.", 8));
    CHECK(megatron_tensor_parse("chained_0.optimizer.state.fp32_param.output_layer.weight", &n));
    CHECK(n.source == MEGATRON_FP32);
    CHECK(megatron_tensor_parse("optimizer.state.param.output_layer.weight", &n));
    CHECK(n.source == MEGATRON_FP32);
    static const char *const other[] = {"decoder.layers.0.mlp.router.weight",
                                        "decoder.layers.0.mlp.linear_fc2.weight_v",
                                        "decoder.layers.99999999.mlp.linear_fc2.weight",
                                        "decoder.layers.4096.mlp.linear_fc2.weight",
                                        "decoder.layers.",
                                        "optimizer.state.momentum_buffer.output_layer.weight",
                                        "embedding.position_embeddings.weight",
                                        ""};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        CHECK(!megatron_tensor_parse(other[i], &n));
    CHECK(megatron_tensor_is_ignored("decoder.layers.mlp.linear_fc1._extra_state/shard_0_2"));
    CHECK(!megatron_tensor_is_ignored("decoder.layers.0.mlp.router.weight"));
}

/* H 4, G 2, K 2: rows of a group are 4 of queries, 2 of its key, 2 of its value. */
static const struct megatron_sizes sizes = {.H = 4, .G = 2, .K = 2, .F = 3, .V = 5};

/* Adds rows [row, row + count) of a matrix of one column, whose elements are its row numbers. */
static enum status add_rows(struct tensor_slices *s, const char *name, int64_t row, int64_t count)
{
    static float values[64];
    char text[64];
    struct megatron_tensor n;
    for (int i = 0; i < 64; i++) values[i] = (float)i;
    snprintf(text, sizeof text, "%s", name);
    struct torch_tensor t = {.name = text,
                             .dtype = SAFETENSORS_F32,
                             .num_dims = 2,
                             .shape = {count, 1},
                             .strides = {1, 1},
                             .data = (const unsigned char *)(values + row)};
    CHECK(megatron_tensor_parse(name, &n));
    return megatron_tensor_add(s, &sizes, &n, n.layer, &(struct file_slice){&t, NULL, row, 0});
}

static bool has_rows(const struct tensor_slices *s, enum param_id id, int layer, const float *want,
                     size_t count)
{
    const struct tensor_name name = {id, layer, TENSOR_WEIGHT};
    const struct sliced_tensor *t = tensor_slices_find(s, &name);
    float got[64];
    CHECK(t && (size_t)t->rows == count);
    CHECK_STATUS(OK, tensor_slices_read(s, t, 0, count, got));
    return !memcmp(got, want, count * sizeof *got);
}
#define ROWS(s, id, layer, ...)                                                                    \
    has_rows(s, id, layer, (const float[]){__VA_ARGS__},                                           \
             sizeof(const float[]){__VA_ARGS__} / sizeof(float))

TEST(fused_tensors_of_megatron_are_split)
{
    struct tensor_slices s = {.path = heap_string("x", 1)};
    static const char qkv[] = "decoder.layers.1.self_attention.linear_qkv.weight";
    static const char fc1[] = "decoder.layers.1.mlp.linear_fc1.weight";
    CHECK_STATUS(OK, add_rows(&s, qkv, 0, 3));
    CHECK_STATUS(OK, add_rows(&s, qkv, 3, 13));
    CHECK_STATUS(OK, add_rows(&s, fc1, 0, 6));
    CHECK_STATUS(OK, tensor_slices_finish(&s));
    CHECK(ROWS(&s, PARAM_attn_q, 1, 0, 1, 2, 3, 8, 9, 10, 11));
    CHECK(ROWS(&s, PARAM_attn_k, 1, 4, 5, 12, 13) && ROWS(&s, PARAM_attn_v, 1, 6, 7, 14, 15));
    CHECK(ROWS(&s, PARAM_mlp_gate, 1, 0, 1, 2) && ROWS(&s, PARAM_mlp_up, 1, 3, 4, 5));
    CHECK_STATUS(DATA, add_rows(&s, qkv, 3, 14));
    CHECK_MESSAGE("expected 16");
    tensor_slices_release(&s);
}

TEST(padding_of_the_vocabulary_is_dropped_from_any_piece)
{
    struct tensor_slices s = {.path = heap_string("x", 1)};
    CHECK_STATUS(OK, add_rows(&s, "output_layer.weight", 0, 4));
    CHECK_STATUS(OK, add_rows(&s, "output_layer.weight", 4, 4));
    CHECK_STATUS(OK, add_rows(&s, "output_layer.weight", 8, 4));
    CHECK_STATUS(OK, tensor_slices_finish(&s));
    CHECK(ROWS(&s, PARAM_head, -1, 0, 1, 2, 3, 4));
    tensor_slices_release(&s);
}

/* Rows of a head of 4 are in Meta's order 0, 2, 1, 3: so are its biases. */
TEST(interleaved_rotary_pairs_of_q_and_k_are_permuted_with_their_biases)
{
    static const struct megatron_sizes heads = {.H = 2, .G = 1, .K = 4, .F = 3};
    struct tensor_slices s = {.path = heap_string("x", 1), .head_dim = 4};
    float values[16];
    char name[] = "decoder.layers.0.self_attention.linear_qkv.bias";
    struct megatron_tensor n;
    struct torch_tensor t = {.name = name,
                             .dtype = SAFETENSORS_F32,
                             .num_dims = 1,
                             .shape = {16},
                             .strides = {1},
                             .data = (const unsigned char *)values};
    for (int i = 0; i < 16; i++) values[i] = (float)i;
    CHECK(megatron_tensor_parse(name, &n));
    CHECK_STATUS(OK, megatron_tensor_add(&s, &heads, &n, 0, &(struct file_slice){&t, NULL, 0, 0}));
    CHECK(megatron_tensor_parse("decoder.layers.0.self_attention.linear_qkv.weight", &n));
    t.num_dims = 2, t.shape[1] = t.strides[1] = 1;
    CHECK_STATUS(OK, megatron_tensor_add(&s, &heads, &n, 0, &(struct file_slice){&t, NULL, 0, 0}));
    CHECK_STATUS(OK, tensor_slices_finish(&s));
    CHECK(ROWS(&s, PARAM_attn_q, 0, 0, 2, 1, 3, 4, 6, 5, 7));
    CHECK(ROWS(&s, PARAM_q_bias, 0, 0, 2, 1, 3, 4, 6, 5, 7));
    CHECK(ROWS(&s, PARAM_attn_k, 0, 8, 10, 9, 11) && ROWS(&s, PARAM_k_bias, 0, 8, 10, 9, 11));
    CHECK(ROWS(&s, PARAM_attn_v, 0, 12, 13, 14, 15) && ROWS(&s, PARAM_v_bias, 0, 12, 13, 14, 15));
    tensor_slices_release(&s);
}

/* Its strides may be anything: nothing is at them. */
TEST(parts_of_empty_tensors_stay_within_them)
{
    float value = 0;
    const struct torch_tensor t = {.dtype = SAFETENSORS_F32,
                                   .num_dims = 2,
                                   .shape = {4, 0},
                                   .strides = {INT64_MAX, INT64_MAX},
                                   .data = (const unsigned char *)&value};
    const struct torch_tensor part = megatron_tensor_part(&t, 2, 2);
    CHECK(part.shape[0] == 2 && part.data == t.data);
}
