// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_ranks.h"

#include "base/file.h"
#include "formats/torch_writer.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

/* 2 layers on 2 pipeline ranks, and 2 tensor-parallel ranks: H 2, G 2, K 2, D 4, F 4, V 6. */
static const struct model_shape shape = {.V = 6, .D = 4, .L = 2, .H = 2, .G = 2, .K = 2, .F = 4};

/* A tensor of a rank, whose elements are `first`, `first` + 1, ... */
struct rank_tensor {
    const char *name;
    int64_t rows, columns;
    int first;
};

static void write_rank(const char *root, const char *folder, const struct rank_tensor *all,
                       size_t count)
{
    char names[8][96];
    struct torch_tensor tensors[8];
    struct torch_writer w;
    uint64_t size;
    const char *path = test_path(test_path(root, folder), "model_optim_rng.pt");
    CHECK(count <= 8);
    CHECK_STATUS(OK, file_make_dirs(test_path(root, folder)));
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s", all[i].name);
        tensors[i] = (struct torch_tensor){.name = names[i],
                                           .dtype = SAFETENSORS_F32,
                                           .num_dims = all[i].columns ? 2 : 1,
                                           .shape = {all[i].rows, all[i].columns}};
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK_STATUS(OK, torch_writer_open(&w, fd, path, 0, tensors, count));
    for (size_t i = 0; i < count; i++)
        for (int64_t k = 0; k < all[i].rows * (all[i].columns ? all[i].columns : 1); k++) {
            float value = (float)(all[i].first + k);
            CHECK_STATUS(OK, torch_writer_put(&w, &value, sizeof value));
        }
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    close(fd);
}

#define LAYER "model.decoder.layers.0."
/* Both pipeline ranks call their only layer 0. */
static void write_ranks(const char *root)
{
    for (int tp = 0; tp < 2; tp++)
        for (int pp = 0; pp < 2; pp++) {
            char folder[32];
            int at = 1000 * pp + 100 * tp;
            const struct rank_tensor all[] = {
                {LAYER "mlp.linear_fc1.weight", 4, 4, at},
                {LAYER "mlp.linear_fc2.weight", 4, 2, at},
                {LAYER "self_attention.linear_qkv.weight", 6, 4, at},
                {LAYER "input_layernorm.weight", 4, 0, at},
                {pp ? "model.output_layer.weight" : "model.embedding.word_embeddings.weight", 3, 4,
                 at},
            };
            snprintf(folder, sizeof folder, "mp_rank_%02d_%03d", tp, pp);
            write_rank(root, folder, all, sizeof all / sizeof *all);
        }
}

static bool has_row(const struct tensor_slices *s, enum param_id id, int layer, size_t row,
                    float first)
{
    const struct tensor_name name = {id, layer, TENSOR_WEIGHT};
    const struct sliced_tensor *t = tensor_slices_find(s, &name);
    float got;
    CHECK(t);
    CHECK_STATUS(OK, tensor_slices_read(s, t, row * (size_t)t->columns, 1, &got));
    return got >= first && got <= first;
}

TEST(slices_of_megatrons_ranks_are_joined)
{
    const char *root = test_folder();
    struct tensor_slices s;
    write_ranks(root);
    CHECK(megatron_ranks_detect(root) && !megatron_ranks_detect(test_path(root, "mp_rank_00_000")));
    CHECK_STATUS(OK, megatron_ranks_open(&s, root, &shape));
    CHECK(has_row(&s, PARAM_mlp_gate, 0, 1, 4) && has_row(&s, PARAM_mlp_up, 0, 1, 12));
    CHECK(has_row(&s, PARAM_mlp_gate, 1, 2, 1100) && has_row(&s, PARAM_mlp_up, 1, 3, 1112));
    CHECK(has_row(&s, PARAM_attn_q, 0, 2, 100) && has_row(&s, PARAM_attn_k, 0, 1, 12));
    CHECK(has_row(&s, PARAM_attn_v, 1, 3, 1120) && has_row(&s, PARAM_attn_norm, 1, 0, 1000));
    CHECK(has_row(&s, PARAM_embed, -1, 4, 104) && has_row(&s, PARAM_head, -1, 5, 1108));
    const struct tensor_name down = {PARAM_mlp_down, 1, TENSOR_WEIGHT};
    float row[4];
    CHECK_STATUS(OK, tensor_slices_read(&s, tensor_slices_find(&s, &down), 4, 4, row));
    CHECK(row[0] >= 1002 && row[1] <= 1003 && row[2] >= 1102 && row[3] <= 1103);
    tensor_slices_release(&s);
}

TEST(megatrons_ranks_must_be_complete_and_fit_the_model)
{
    const char *root = test_folder();
    struct model_shape other = shape;
    struct tensor_slices s;
    write_ranks(root);
    CHECK_STATUS(MISSING, megatron_ranks_open(&s, root, NULL));
    CHECK_MESSAGE("the checkpoint has no args");
    other.L = 3;
    CHECK_STATUS(UNSUPPORTED, megatron_ranks_open(&s, root, &other));
    CHECK_MESSAGE("stages with different numbers of layers");
    other = shape, other.F = 6;
    CHECK_STATUS(DATA, megatron_ranks_open(&s, root, &other));
    CHECK_MESSAGE("linear_fc1.weight");
    CHECK_STATUS(OK, file_remove_tree(test_path(root, "mp_rank_01_000")));
    CHECK_STATUS(MISSING, megatron_ranks_open(&s, root, &shape));
    CHECK_MESSAGE("mp_rank_01_000");
}

TEST(other_models_of_megatron_are_rejected)
{
    static const struct rank_tensor legacy = {
        "model.language_model.encoder.layers.0.mlp.dense_h_to_4h.weight", 4, 4, 0};
    static const struct rank_tensor vector = {LAYER "mlp.linear_fc2.weight", 4, 0, 0};
    const char *root = test_folder();
    struct tensor_slices s;
    write_rank(root, "mp_rank_00", &legacy, 1);
    CHECK_STATUS(DATA, megatron_ranks_open(&s, root, &shape));
    CHECK_MESSAGE("does not belong to a Llama of megatron-core");
    write_rank(root, "mp_rank_00", &vector, 1);
    CHECK_STATUS(DATA, megatron_ranks_open(&s, root, &shape));
    CHECK_MESSAGE("has 1 dimensions, expected 2");
}
