// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_shard.h"

#include "base/file.h"
#include "test.h"

#include <unistd.h>

static const struct megatron_sizes sizes = {.L = 1, .H = 2, .G = 2, .K = 2, .F = 6};

/* Rank 1 of 2 has 3 rows of either half of linear_fc1, with 4 columns. */
TEST(flattened_pieces_of_a_rank_are_joined)
{
    struct megatron_shard shard = {.layer = 0, .tp = 1, .num_tp = 2, .rows = 6, .columns = 4};
    CHECK(megatron_tensor_parse("decoder.layers.0.mlp.linear_fc1.weight", &shard.tensor));
    float values[24], got[4];
    char name[] = "fc1";
    for (int i = 0; i < 24; i++) values[i] = (float)i;
    for (int cut = 0; cut <= 24; cut++) {
        struct tensor_slices s = {.path = heap_string("iter_3", 6)};
        for (int i = 0; i < 2; i++) {
            const struct torch_tensor t = {.name = name,
                                           .dtype = SAFETENSORS_F32,
                                           .num_dims = 1,
                                           .shape = {i ? 24 - cut : cut},
                                           .strides = {1},
                                           .data = (const unsigned char *)&values[i ? cut : 0]};
            const struct file_slice piece = {&t, NULL, i ? cut : 0, 0};
            CHECK_STATUS(OK, megatron_shard_add_flat(&s, &sizes, &shard, &piece));
        }
        for (int i = 0; i < 6; i++) {
            const struct tensor_name of = {i < 3 ? PARAM_mlp_gate : PARAM_mlp_up, 0, TENSOR_WEIGHT};
            const struct sliced_tensor *t = tensor_slices_find(&s, &of);
            CHECK(t && t->rows == 6 && t->columns == 4);
            CHECK_STATUS(OK, tensor_slices_read(&s, t, (size_t)(3 + i % 3) * 4, 4, got));
            CHECK(!memcmp(got, values + 4 * i, sizeof got));
        }
        tensor_slices_release(&s);
    }
}

TEST(a_rank_lists_its_layers)
{
    const struct megatron_state m = {.has_args = true,
                                     .shape = {.V = 8,
                                               .D = 4,
                                               .L = 8,
                                               .H = 2,
                                               .G = 2,
                                               .K = 2,
                                               .F = 4,
                                               .qk_norm = true,
                                               .qkv_bias = true,
                                               .tied = true},
                                     .padded_vocab = 8,
                                     .tp = 2,
                                     .pp = 2,
                                     .chunks = 2};
    struct megatron_sizes z = {.L = 8, .H = 2, .G = 2, .K = 2, .F = 4};
    struct megatron_shards s;
    CHECK_STATUS(OK, megatron_shards_list(&s, &m, &z, &(struct megatron_chunk){0, 0, 0, true}));
    CHECK(s.count == 1 + 2 * 9 && !strcmp(s.all[0].name, "embedding.word_embeddings.weight"));
    CHECK(s.all[0].rows == 4 && s.all[0].columns == 4 && !s.all[0].is_copy);
    CHECK(!strcmp(s.all[2].name, "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight"));
    megatron_shards_release(&s);
    CHECK_STATUS(OK, megatron_shards_list(&s, &m, &z, &(struct megatron_chunk){1, 1, 1, false}));
    CHECK(s.count == 2 * 9 + 2 && s.all[0].layer == 6);
    CHECK(!strcmp(s.all[0].name, "decoder.layers.6.input_layernorm.weight"));
    CHECK(!strcmp(s.all[s.count - 1].name, "output_layer.weight") && s.all[s.count - 1].is_copy);
    megatron_shards_release(&s);
    z.L = 6;
    CHECK_STATUS(UNSUPPORTED,
                 megatron_shards_list(&s, &m, &z, &(struct megatron_chunk){0, 0, 0, true}));
    CHECK_MESSAGE("6 layers on 4 pipeline stages");
    megatron_shards_release(&s);
}

/* An embedding of 16 x 8 elements. */
static struct tensor_slices embedding(enum safetensors_dtype dtype, const void *elements,
                                      const struct file_map *map)
{
    static const struct file_map memory = {0};
    char name[] = "w";
    const struct tensor_name of = {PARAM_embed, -1, TENSOR_WEIGHT};
    const struct torch_tensor t = {.name = name,
                                   .dtype = dtype,
                                   .num_dims = 2,
                                   .shape = {16, 8},
                                   .strides = {8, 1},
                                   .data = elements};
    struct tensor_slices s = {.path = heap_string("iter_3", 6)};
    const struct file_slice whole = {&t, map ? map : &memory, 0, 0};
    CHECK_STATUS(OK, tensor_slices_add(&s, &of, &whole));
    CHECK_STATUS(OK, tensor_slices_finish(&s));
    return s;
}

TEST(float32_copies_are_those_of_the_weights)
{
    float copies[128] = {0}, weights[128] = {0};
    struct tensor_slices a = embedding(SAFETENSORS_F32, copies, NULL), none = {0};
    struct tensor_slices b = embedding(SAFETENSORS_F32, weights, NULL);
    for (int i = 0; i < 128; i++) copies[i] = (float)(i + 1), weights[i] = copies[i] * 1.003f;
    CHECK_STATUS(OK, megatron_shard_check_copies(&a, &b));
    for (int i = 0; i < 128; i += 127) {
        weights[i] *= 1.1f;
        CHECK_STATUS(UNSUPPORTED, megatron_shard_check_copies(&a, &b));
        CHECK_MESSAGE("float32 copy of model.embed_tokens.weight is not the model's weight");
        weights[i] = copies[i];
    }
    CHECK_STATUS(UNSUPPORTED, megatron_shard_check_copies(&a, &none));
    tensor_slices_release(&a), tensor_slices_release(&b);
}

/* Subnormal numbers, which have fewer bits: 1e-8 is 0, and 1e-5 168 * 2^-24. */
TEST(float16_weights_near_zero_are_those_of_their_copies)
{
    float copies[128] = {0};
    uint16_t weights[128] = {0};
    struct tensor_slices a = embedding(SAFETENSORS_F32, copies, NULL);
    struct tensor_slices b = embedding(SAFETENSORS_F16, weights, NULL);
    for (int i = 0; i < 128; i++) copies[i] = i % 2 ? 1e-5f : 1e-8f, weights[i] = i % 2 ? 168 : 0;
    CHECK_STATUS(OK, megatron_shard_check_copies(&a, &b));
    weights[1] = 160;
    CHECK_STATUS(UNSUPPORTED, megatron_shard_check_copies(&a, &b));
    tensor_slices_release(&a), tensor_slices_release(&b);
}

/* Pages that cannot be read are zeros, which differ from the weights. */
TEST(copies_that_cannot_be_read_are_not_taken_for_others)
{
    const char *path = test_path(test_folder(), "copies");
    float elements[128];
    struct file_map map;
    for (int i = 0; i < 128; i++) elements[i] = (float)(i + 1);
    struct tensor_slices memory = embedding(SAFETENSORS_F32, elements, NULL);
    for (int torn = 0; torn < 2; torn++) {
        CHECK_STATUS(OK, file_write(path, elements, sizeof elements));
        CHECK_STATUS(OK, file_map_open(&map, path));
        struct tensor_slices file = embedding(SAFETENSORS_F32, map.data, &map);
        CHECK(!truncate(path, 0));
        CHECK_STATUS(DATA, torn ? megatron_shard_check_copies(&file, &memory)
                                : megatron_shard_check_copies(&memory, &file));
        CHECK_MESSAGE("truncated");
        tensor_slices_release(&file);
        file_map_close(&map);
    }
    tensor_slices_release(&memory);
}
