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
