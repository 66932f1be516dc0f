// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_ranks.h"

#include "base/file.h"
#include "checkpoint/interop/megatron_rank.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/torch_files.h"
#include "formats/torch_writer.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

/* 2 layers on 2 pipeline ranks, and 2 tensor-parallel ranks: H 2, G 2, K 2, D 4, F 4, V 6. */
static const struct model_shape shape = {.V = 6, .D = 4, .L = 2, .H = 2, .G = 2, .K = 2, .F = 4};

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

/* Writes an archive of float32 tensors, whose data are their elements; args may be NULL. */
static void write_archive(const char *path, const struct torch_tensor *tensors, size_t count,
                          const struct megatron_args *args)
{
    struct zip_writer zip = {0};
    struct text pickle = {0}, out = {0}, tail = {0};
    torch_write_pickle(tensors, count, &pickle);
    if (args) add_args(&pickle, args);
    add_entry(&zip, "archive/data.pkl", pickle.data, pickle.len, &out);
    add_entry(&zip, "archive/byteorder", "little", 6, &out);
    for (size_t i = 0; i < count; i++) {
        char name[40];
        const int64_t *dims = tensors[i].shape;
        snprintf(name, sizeof name, "archive/data/%zu", i);
        add_entry(&zip, name, tensors[i].data,
                  sizeof(float) * (size_t)(dims[0] * (tensors[i].num_dims > 1 ? dims[1] : 1)),
                  &out);
    }
    zip_writer_finish(&zip, &tail);
    text_add(&out, tail.data, tail.len);
    CHECK_STATUS(OK, file_write(path, out.data, out.len));
    text_release(&pickle), text_release(&out), text_release(&tail);
    zip_writer_release(&zip);
}

/* Writes a rank with a distributed optimizer, whose vectors have `extra` elements more than the
 * parameters.  Its copies and moments are those of parameters with the elements of `copies`: copies
 * are larger by 0.25, moments by 50. */
struct written_rank {
    const char *root, *folder;
    const struct rank_tensor *all, *copies; /* chunk by chunk */
    int count;
    int64_t extra;
};
static void write_optimizer_rank(const struct written_rank *r, const struct megatron_args *args)
{
    enum { MOST = 24, CHUNKS = 2 };
    static const char *const keys[3] = {"param", "exp_avg", "exp_avg_sq"};
    static float values[MOST][64], vectors[CHUNKS][3][1024];
    char names[MOST][96], vector_names[CHUNKS][3][32];
    struct torch_tensor model[MOST], state[CHUNKS * 3];
    int64_t end[CHUNKS] = {0};
    int written = strncmp(r->all[r->count - 1].name, "model1.", 7) ? 1 : CHUNKS;
    const char *folder = test_path(r->root, r->folder);
    CHECK(r->count <= MOST);
    CHECK_STATUS(OK, file_make_dirs(folder));
    for (int i = r->count - 1; i >= 0; i--) {
        const struct rank_tensor *t = &r->all[i];
        int chunk = !strncmp(t->name, "model1.", 7);
        int64_t start = (end[chunk] + 63) / 64 * 64;
        int64_t count = t->rows * (t->columns ? t->columns : 1);
        CHECK(start + count <= 1000 && count <= 64);
        snprintf(names[i], sizeof names[i], "%s", t->name);
        model[i] = (struct torch_tensor){.name = names[i],
                                         .dtype = SAFETENSORS_F32,
                                         .num_dims = t->columns ? 2 : 1,
                                         .shape = {t->rows, t->columns},
                                         .data = (const unsigned char *)values[i]};
        for (int64_t e = 0; e < count; e++) {
            float value = (float)r->copies[i].first + (float)e;
            values[i][e] = (float)t->first + (float)e;
            vectors[chunk][0][start + e] = value + 0.25f;
            vectors[chunk][1][start + e] = vectors[chunk][2][start + e] = value + 50;
        }
        end[chunk] = start + count;
    }
    for (int chunk = 0; chunk < written; chunk++)
        for (int k = 0; k < 3; k++) {
            snprintf(vector_names[chunk][k], 32, "%d.().%s", chunk, keys[k]);
            state[3 * chunk + k] =
                (struct torch_tensor){.name = vector_names[chunk][k],
                                      .dtype = SAFETENSORS_F32,
                                      .num_dims = 1,
                                      .shape = {end[chunk] + r->extra},
                                      .data = (const unsigned char *)vectors[chunk][k]};
        }
    write_archive(test_path(folder, "model_optim_rng.pt"), model, (size_t)r->count, args);
    write_archive(test_path(folder, "distrib_optim.pt"), state, (size_t)(3 * written), NULL);
}

/* The only rank.  order[i] is the parameter that the optimizer has in the place of i. */
static const char *write_optimizer(const int *order, int64_t extra,
                                   const struct megatron_args *args)
{
    struct rank_tensor all[PARAMS], copies[PARAMS];
    const struct written_rank r = {test_folder(), "mp_rank_00", all, copies, PARAMS, extra};
    for (int i = 0; i < PARAMS; i++) {
        all[i] = copies[i] = one_layer[i];
        all[i].first = 100 * (i + 1), copies[i].first = 100 * (order[i] + 1);
    }
    write_optimizer_rank(&r, args);
    return r.root;
}

/* All ranks.  Parameter i of one_layer has in each rank and stage elements from
 * 10000 stage + 1000 tp + 100 (i + 1) on. */
static const char *write_optimizers(const struct megatron_args *a)
{
    static const int split[PARAMS] = {1, 0, 2, 1, 0, 1, 2, 0, 1}; /* 1: rows, 2: columns */
    const char *root = test_folder();
    int stages = a->pp * a->chunks;
    for (int pp = 0; pp < a->pp; pp++)
        for (int tp = 0; tp < a->tp; tp++) {
            struct rank_tensor all[2 * PARAMS];
            char names[2 * PARAMS][96], folder[32];
            int count = 0;
            for (int chunk = 0; chunk < a->chunks; chunk++)
                for (int i = 0; i < PARAMS; i++) {
                    int stage = chunk * a->pp + pp;
                    if ((stage && i == 0) || (stage < stages - 1 && i >= PARAMS - 2)) continue;
                    struct rank_tensor *t = &all[count];
                    *t = one_layer[i];
                    if (split[i] == 1) t->rows /= a->tp;
                    if (split[i] == 2) t->columns /= a->tp;
                    t->first = 10000 * stage + 1000 * tp + 100 * (i + 1);
                    if (a->tied && i == PARAMS - 1) t->first = 1000 * tp + 100;
                    snprintf(names[count], sizeof names[count], "model%s%s",
                             a->chunks == 1 ? ""
                             : chunk        ? "1"
                                            : "0",
                             one_layer[i].name + strlen("model"));
                    t->name = names[count++];
                }
            snprintf(folder, sizeof folder, a->pp > 1 ? "mp_rank_%02d_%03d" : "mp_rank_%02d", tp,
                     pp);
            const struct written_rank r = {root, folder, all, all, count, 0};
            write_optimizer_rank(&r, a);
        }
    return root;
}

TEST(the_distributed_optimizer_of_megatrons_ranks_is_read)
{
    static const int order[PARAMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const char *root = write_optimizer(order, 0, &one_rank);
    struct torch_state state;
    struct tensor_slices s;
    CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
    CHECK(s.count == 12 && has_first(&s, PARAM_mlp_down, 0, TENSOR_WEIGHT, 700.25f));
    tensor_slices_release(&s);
    CHECK_STATUS(OK, torch_files_open_moments(&s, root, NULL, &state));
    CHECK(s.count == 24 && state.step == 3);
    CHECK(has_first(&s, PARAM_embed, -1, TENSOR_EXP_AVG, 150));
    CHECK(has_first(&s, PARAM_head, -1, TENSOR_EXP_AVG_SQ, 950));
    CHECK(has_first(&s, PARAM_attn_norm, 0, TENSOR_EXP_AVG, 250));
    CHECK(has_first(&s, PARAM_attn_out, 0, TENSOR_EXP_AVG, 350));
    CHECK(has_first(&s, PARAM_mlp_up, 0, TENSOR_EXP_AVG, 666));
    tensor_slices_release(&s);
    torch_state_release(&state);
}

TEST(the_distributed_optimizer_of_many_ranks_is_read)
{
    static const struct megatron_args args = {.layers = 4, .tp = 2, .pp = 2, .chunks = 2};
    const char *root = write_optimizers(&args);
    const struct tensor_name down = {PARAM_mlp_down, 3, TENSOR_EXP_AVG};
    struct torch_state state;
    struct tensor_slices s;
    float row[4];
    CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
    CHECK(s.count == 39 && has_first(&s, PARAM_attn_norm, 2, TENSOR_WEIGHT, 20200.25f));
    CHECK(has_row(&s, PARAM_mlp_gate, 1, 2, 11600.25f));
    tensor_slices_release(&s);
    CHECK_STATUS(OK, torch_files_open_moments(&s, root, NULL, &state));
    CHECK(s.count == 78 && has_first(&s, PARAM_head, -1, TENSOR_EXP_AVG_SQ, 30950));
    CHECK_STATUS(OK, tensor_slices_read(&s, tensor_slices_find(&s, &down), 0, 4, row));
    CHECK_NEAR(row[0], 30750, 0);
    CHECK_NEAR(row[2], 31750, 0);
    tensor_slices_release(&s);
    torch_state_release(&state);
}

/* The last stage has a copy of the embedding. */
TEST(the_distributed_optimizer_of_a_tied_model_on_two_stages_is_read)
{
    static const struct megatron_args args = {
        .layers = 2, .tp = 1, .pp = 2, .chunks = 1, .tied = true};
    const char *root = write_optimizers(&args);
    struct torch_state state;
    struct tensor_slices s;
    CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
    CHECK(s.count == 20 && has_first(&s, PARAM_embed, -1, TENSOR_WEIGHT, 100.25f));
    tensor_slices_release(&s);
    CHECK_STATUS(OK, torch_files_open_moments(&s, root, NULL, &state));
    CHECK(s.count == 40 && has_first(&s, PARAM_last_norm, -1, TENSOR_EXP_AVG, 10850));
    tensor_slices_release(&s);
    torch_state_release(&state);
}

TEST(an_optimizer_of_megatrons_ranks_in_another_order_is_unsupported)
{
    static const int orders[][PARAMS] = {{0, 4, 2, 3, 1, 5, 6, 7, 8},
                                         {8, 1, 2, 3, 4, 5, 6, 7, 0},
                                         {0, 1, 2, 3, 4, 5, 6, 7, 8},
                                         {0, 1, 2, 3, 4, 5, 6, 7, 8}};
    static const int64_t extras[] = {0, 0, -1, 1};
    for (int i = 0; i < 4; i++) {
        const char *root = write_optimizer(orders[i], extras[i], &one_rank);
        struct torch_state state;
        struct model_files files;
        struct tensor_slices s;
        CHECK_STATUS(UNSUPPORTED, model_files_open_moments_any(&files, root, NULL, &state));
        CHECK_MESSAGE(
            "; convert the checkpoint with Megatron-LM's --ckpt-convert-format torch_dist");
        torch_state_release(&state);
        CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
        CHECK(s.count == 12 && has_first(&s, PARAM_mlp_down, 0, TENSOR_WEIGHT, 700));
        tensor_slices_release(&s);
    }
}

TEST(an_optimizer_that_contradicts_args_is_unsupported)
{
    static const int order[PARAMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static const struct {
        struct megatron_args args;
        const char *message;
    } cases[] = {
        {{.tp = 2},
         "args.tensor_model_parallel_size = 2 and pipeline_model_parallel_size = 1, but there are "
         "folders of 1 x 1 ranks"},
        {{.chunks = INT32_MAX},
         "args.virtual_pipeline_model_parallel_size = 2147483647: expected at most 256"},
        {{.chunks = 2}, "has 3 tensors, expected 6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *root = write_optimizer(order, 0, &cases[i].args);
        struct torch_state state;
        struct tensor_slices s;
        CHECK_STATUS(UNSUPPORTED, torch_files_open_moments(&s, root, NULL, &state));
        CHECK_MESSAGE(cases[i].message);
        torch_state_release(&state);
        CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
        tensor_slices_release(&s);
    }
}

TEST(a_truncated_optimizer_of_megatrons_ranks_is_damage)
{
    static const int order[PARAMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const char *root = write_optimizer(order, 0, &one_rank);
    const char *path = test_path(root, "mp_rank_00/distrib_optim.pt");
    struct torch_state state;
    struct tensor_slices s;
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t len = 0; len < t.len; len += 499) {
        CHECK_STATUS(OK, file_write(path, t.data, len));
        CHECK_STATUS(DATA, torch_files_open_moments(&s, root, NULL, &state));
        CHECK_STATUS(DATA, megatron_ranks_open(&s, root, NULL));
        torch_state_release(&state);
    }
    text_release(&t);
}
