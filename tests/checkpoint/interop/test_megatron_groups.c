// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_groups.h"

#include "base/file.h"
#include "checkpoint/interop/megatron_rank.h"
#include "checkpoint/interop/megatron_ranks.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/torch_files.h"

enum { ELEMENTS = 1100 }; /* of each data/N */

/* Writes the arguments of a call that makes a tensor, which begins with element `first` of the
 * archive's data/0 or data/1, of float32, or data/2, of bytes. */
static void write_arguments(struct text *t, const char *storage, int64_t first,
                            const struct rank_tensor *like)
{
    const int64_t dims[] = {like->rows, like->columns}, strides[] = {like->columns, 1}, one = 1;
    int count = like->columns ? 2 : 1;
    pickle_write_mark(t), pickle_write_mark(t);
    pickle_write_string(t, "storage");
    pickle_write_global(t, "torch", *storage == '2' ? "ByteStorage" : "FloatStorage");
    pickle_write_string(t, storage), pickle_write_string(t, "cpu"), pickle_write_int(t, ELEMENTS);
    pickle_write_tuple(t), pickle_write_persid(t);
    pickle_write_int(t, first);
    pickle_write_int_tuple(t, dims, count);
    pickle_write_int_tuple(t, count > 1 ? strides : &one, count);
    pickle_write_bool(t, false);
    pickle_write_global(t, "collections", "OrderedDict");
    pickle_write_empty_tuple(t), pickle_write_reduce(t), pickle_write_tuple(t);
}

static void write_view(struct text *t, const char *storage, int64_t first,
                       const struct rank_tensor *like)
{
    pickle_write_global(t, "torch._utils", "_rebuild_tensor_v2");
    write_arguments(t, storage, first, like), pickle_write_reduce(t);
}

/* A copy has attributes: tensor_model_parallel and others. */
static void write_copy(struct text *t, int64_t first, const struct rank_tensor *like)
{
    pickle_write_global(t, "torch._tensor", "_rebuild_from_type_v2");
    pickle_write_mark(t), pickle_write_global(t, "torch._utils", "_rebuild_tensor_v2");
    pickle_write_global(t, "torch", "Tensor");
    write_arguments(t, "1", first, like);
    pickle_write_empty_dict(t), pickle_write_tuple(t), pickle_write_reduce(t);
}

/* A rank and its part of the model. */
struct numbered_rank {
    const char *folder;
    const struct megatron_args *args;
    const struct rank_tensor *all;
    int count;
};
static const struct numbered_rank only = {"mp_rank_00", &one_rank, one_layer, PARAMS};

/* An optimizer that is not distributed; order[i]: as for write_optimizer. */
struct numbered {
    int order[PARAMS + 1];
    bool has_copies;
    int other_group; /* parameter that is in the other group; -1: none */
    int extra;       /* numbers that norms have more than there are parameters; -1: none at all */
    bool has_bytes;  /* moments are bytes */
    const struct numbered_rank *rank; /* NULL: the only one */
};

static const struct numbered_rank *rank_of(const struct numbered *n)
{
    return n->rank ? n->rank : &only;
}

static bool is_of_group(const struct numbered *n, int i, int group)
{
    int own = rank_of(n)->all[i].columns ? 0 : 1;
    return group == (i == n->other_group ? 1 - own : own);
}

static int first_of(const struct numbered *n, int i) { return 100 * (n->order[i] + 1); }

/* Writes {"state": {0: {"exp_avg": tensor, "exp_avg_sq": tensor}, ...}, "param_groups": [...]}. */
static void write_numbers(struct text *t, const struct numbered *n)
{
    const struct numbered_rank *r = rank_of(n);
    const char *storage = n->has_bytes ? "2" : "0";
    int id = 0;
    pickle_write_empty_dict(t), pickle_write_mark(t);
    pickle_write_string(t, "state"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < r->count; i++) {
            if (!is_of_group(n, i, g)) continue;
            pickle_write_int(t, id++), pickle_write_empty_dict(t), pickle_write_mark(t);
            pickle_write_string(t, "exp_avg");
            write_view(t, storage, first_of(n, i) + 50, &r->all[n->order[i]]);
            pickle_write_string(t, "exp_avg_sq");
            write_view(t, storage, first_of(n, i) + 25, &r->all[n->order[i]]);
            pickle_write_setitems(t);
        }
    pickle_write_setitems(t);
    pickle_write_string(t, "param_groups"), pickle_write_empty_list(t), pickle_write_mark(t);
    for (int g = id = 0; g < 2; g++) {
        pickle_write_empty_dict(t), pickle_write_mark(t);
        pickle_write_string(t, "wd_mult"), pickle_write_float(t, 1 - g);
        pickle_write_string(t, "params"), pickle_write_empty_list(t), pickle_write_mark(t);
        for (int i = 0; i < r->count; i++)
            if (is_of_group(n, i, g) && !(g && n->extra < 0)) pickle_write_int(t, id++);
        for (int i = 0; g && i < n->extra; i++) pickle_write_int(t, id++);
        pickle_write_appends(t), pickle_write_setitems(t);
    }
    pickle_write_appends(t), pickle_write_setitems(t);
}

static void write_copies(struct text *t, const struct numbered *n)
{
    const struct numbered_rank *r = rank_of(n);
    pickle_write_empty_dict(t), pickle_write_mark(t);
    pickle_write_string(t, "optimizer"), write_numbers(t, n);
    pickle_write_string(t, "fp32_from_fp16_params");
    pickle_write_empty_list(t), pickle_write_mark(t);
    for (int g = 0; g < 2; g++) {
        pickle_write_empty_list(t), pickle_write_mark(t);
        for (int i = 0; i < r->count; i++)
            if (is_of_group(n, i, g)) write_copy(t, first_of(n, i), &r->all[n->order[i]]);
        pickle_write_appends(t);
    }
    pickle_write_appends(t), pickle_write_setitems(t);
}

/* Writes a rank's file.  Element e of data/0 is e, of data/1 e + 0.25. */
static void write_rank(const char *root, const struct numbered *n)
{
    const struct numbered_rank *r = rank_of(n);
    const char *rank = test_path(root, r->folder);
    static float values[2][ELEMENTS];
    static const char bytes[ELEMENTS];
    struct zip_writer zip = {0};
    struct text t = {0}, out = {0}, tail = {0};
    CHECK_STATUS(OK, file_make_dirs(rank));
    pickle_write_proto(&t), pickle_write_empty_dict(&t), pickle_write_mark(&t);
    for (int i = 0; i < r->count; i++) {
        pickle_write_string(&t, r->all[i].name);
        write_view(&t, "0", 100 * (i + 1), &r->all[i]);
    }
    pickle_write_string(&t, "optimizer");
    if (n->has_copies)
        write_copies(&t, n);
    else
        write_numbers(&t, n);
    pickle_write_setitems(&t), pickle_write_stop(&t);
    add_args(&t, r->args);
    add_entry(&zip, "archive/data.pkl", t.data, t.len, &out);
    add_entry(&zip, "archive/byteorder", "little", 6, &out);
    for (int k = 0; k < 2; k++) {
        for (int e = 0; e < ELEMENTS; e++) values[k][e] = (float)e + 0.25f * (float)k;
        add_entry(&zip, k ? "archive/data/1" : "archive/data/0", values[k], sizeof values[k], &out);
    }
    add_entry(&zip, "archive/data/2", bytes, sizeof bytes, &out);
    zip_writer_finish(&zip, &tail);
    text_add(&out, tail.data, tail.len);
    CHECK_STATUS(OK, file_write(test_path(rank, "model_optim_rng.pt"), out.data, out.len));
    text_release(&t), text_release(&out), text_release(&tail);
    zip_writer_release(&zip);
}

static const char *write_numbered(const struct numbered *n)
{
    const char *root = test_folder();
    write_rank(root, n);
    return root;
}

TEST(numbered_state_of_megatrons_ranks_is_read)
{
    for (int has_copies = 0; has_copies < 2; has_copies++) {
        const struct numbered n = {.order = {0, 1, 2, 3, 4, 5, 6, 7, 8}, has_copies, -1, 0};
        const char *root = write_numbered(&n);
        struct torch_state state;
        struct tensor_slices s;
        CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
        CHECK(s.count == 12);
        CHECK(has_first(&s, PARAM_mlp_down, 0, TENSOR_WEIGHT, has_copies ? 700.25f : 700));
        tensor_slices_release(&s);
        CHECK_STATUS(OK, torch_files_open_moments(&s, root, NULL, &state));
        CHECK(s.count == 24 && state.step == 3 && state.iteration < 0);
        CHECK(has_first(&s, PARAM_embed, -1, TENSOR_EXP_AVG, 150));
        CHECK(has_first(&s, PARAM_head, -1, TENSOR_EXP_AVG_SQ, 925));
        CHECK(has_first(&s, PARAM_attn_norm, 0, TENSOR_EXP_AVG, 250));
        CHECK(has_first(&s, PARAM_mlp_norm, 0, TENSOR_EXP_AVG_SQ, 525));
        CHECK(has_first(&s, PARAM_mlp_up, 0, TENSOR_EXP_AVG, 666));
        tensor_slices_release(&s);
        torch_state_release(&state);
    }
}

TEST(numbered_state_of_megatrons_ranks_in_another_order_is_unsupported)
{
    static const struct {
        struct numbered n;
        const char *message;
    } bad[] = {
        {{.order = {0, 4, 2, 3, 1, 5, 6, 7, 8}, true, -1, 0}, "float32 copy of"},
        {{.order = {8, 1, 2, 3, 4, 5, 6, 7, 0}, true, -1, 0}, "float32 copy of"},
        {{.order = {5, 1, 2, 3, 4, 0, 6, 7, 8}, true, -1, 0}, "float32 copy of"},
        {{.order = {3, 1, 2, 0, 4, 5, 6, 7, 8}, false, -1, 0},
         "the optimizer's state.0.exp_avg does not have the shape of embedding.word_embeddings"},
        {{.order = {0, 1, 2, 3, 4, 5, 6, 7, 8}, true, 0, 0},
         "does not have the shape of embedding."},
        {{.order = {0, 1, 2, 3, 4, 5, 6, 7, 8}, false, 8, 0},
         "param_groups[0] has no entry 5, for output_layer"},
        {{.order = {0, 1, 2, 3, 4, 5, 6, 7, 8}, false, -1, 2},
         "param_groups[1] has 5 parameters, expected 3"},
        {{.order = {0, 1, 2, 3, 4, 5, 6, 7, 8}, false, -1, -1},
         "param_groups have 6 parameters, expected 9"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *root = write_numbered(&bad[i].n);
        struct torch_state state;
        struct model_files files;
        struct tensor_slices s;
        CHECK_STATUS(UNSUPPORTED, model_files_open_moments_any(&files, root, NULL, &state));
        CHECK_MESSAGE(bad[i].message);
        CHECK_MESSAGE(
            "; convert the checkpoint with Megatron-LM's --ckpt-convert-format torch_dist");
        torch_state_release(&state);
        CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
        CHECK(s.count == 12 && has_first(&s, PARAM_mlp_down, 0, TENSOR_WEIGHT, 700));
        tensor_slices_release(&s);
    }
}

/* The last stage's output layer is a copy of the embedding. */
TEST(numbered_state_of_a_tied_model_on_two_stages_is_read)
{
    static const struct megatron_args args = {
        .layers = 2, .tp = 1, .pp = 2, .chunks = 1, .tied = true};
    static const struct numbered_rank first = {"mp_rank_00_000", &args, one_layer, PARAMS - 2};
    static const struct numbered_rank last = {"mp_rank_00_001", &args, one_layer + 1, PARAMS - 1};
    for (int has_copies = 0; has_copies < 2; has_copies++) {
        const struct numbered stages[] = {
            {.order = {0, 1, 2, 3, 4, 5, 6}, has_copies, -1, .rank = &first},
            {.order = {0, 1, 2, 3, 4, 5, 6, 7}, has_copies, -1, .rank = &last}};
        const char *root = write_numbered(&stages[0]);
        struct torch_state state;
        struct tensor_slices s;
        write_rank(root, &stages[1]);
        CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
        CHECK(s.count == 20);
        CHECK(has_first(&s, PARAM_embed, -1, TENSOR_WEIGHT, has_copies ? 100.25f : 100));
        tensor_slices_release(&s);
        CHECK_STATUS(OK, torch_files_open_moments(&s, root, NULL, &state));
        CHECK(s.count == 40 && has_first(&s, PARAM_embed, -1, TENSOR_EXP_AVG, 150));
        CHECK(has_first(&s, PARAM_attn_norm, 0, TENSOR_EXP_AVG, 250));
        CHECK(has_first(&s, PARAM_attn_norm, 1, TENSOR_EXP_AVG, 150));
        CHECK(has_first(&s, PARAM_last_norm, -1, TENSOR_EXP_AVG_SQ, 725));
        tensor_slices_release(&s);
        torch_state_release(&state);
    }
}

/* Biases are in the group of norms. */
TEST(numbered_state_of_biases_is_read)
{
    static const struct megatron_args args = {.qkv_bias = true};
    struct rank_tensor biased[PARAMS + 1];
    enum { BIAS = 4 }; /* follows linear_qkv.weight */
    for (int i = 0; i < PARAMS; i++) biased[i < BIAS ? i : i + 1] = one_layer[i];
    biased[BIAS] = (struct rank_tensor){LAYER "self_attention.linear_qkv.bias", 12, 0, 0};
    const struct numbered_rank rank = {"mp_rank_00", &args, biased, PARAMS + 1};
    for (int has_copies = 0; has_copies < 2; has_copies++) {
        const struct numbered n = {
            .order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, has_copies, -1, .rank = &rank};
        const char *root = write_numbered(&n);
        struct torch_state state;
        struct tensor_slices s;
        CHECK_STATUS(OK, megatron_ranks_open(&s, root, NULL));
        CHECK(s.count == 15);
        CHECK(has_first(&s, PARAM_k_bias, 0, TENSOR_WEIGHT, has_copies ? 502.25f : 502));
        tensor_slices_release(&s);
        CHECK_STATUS(OK, torch_files_open_moments(&s, root, NULL, &state));
        CHECK(s.count == 30 && has_first(&s, PARAM_q_bias, 0, TENSOR_EXP_AVG, 550));
        CHECK(has_first(&s, PARAM_attn_norm, 0, TENSOR_EXP_AVG, 250));
        CHECK(has_first(&s, PARAM_mlp_norm, 0, TENSOR_EXP_AVG_SQ, 625));
        tensor_slices_release(&s);
        torch_state_release(&state);
    }
}

TEST(numbered_state_of_another_dtype_is_named_with_one_path)
{
    const struct numbered n = {
        .order = {0, 1, 2, 3, 4, 5, 6, 7, 8}, false, -1, 0, .has_bytes = true};
    const char *root = write_numbered(&n);
    struct torch_state state;
    struct tensor_slices s;
    CHECK_STATUS(DATA, torch_files_open_moments(&s, root, NULL, &state));
    CHECK_MESSAGE("state.0.exp_avg has 2 dimensions and dtype U8");
    CHECK(!strncmp(status_message(), root, strlen(root)));
    CHECK(!strstr(status_message() + 1, root));
    torch_state_release(&state);
}
