// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_groups.h"

#include "base/file.h"
#include "checkpoint/interop/megatron_rank.h"
#include "checkpoint/interop/megatron_ranks.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/torch_files.h"

/* Writes the arguments of a call that makes a float32 tensor, which begins with element `first` of
 * the archive's data/0 or data/1. */
static void write_arguments(struct text *t, const char *storage, int64_t first,
                            const struct rank_tensor *like)
{
    const int64_t dims[] = {like->rows, like->columns}, strides[] = {like->columns, 1}, one = 1;
    int count = like->columns ? 2 : 1;
    pickle_write_mark(t), pickle_write_mark(t);
    pickle_write_string(t, "storage"), pickle_write_global(t, "torch", "FloatStorage");
    pickle_write_string(t, storage), pickle_write_string(t, "cpu"), pickle_write_int(t, 1000);
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

/* An optimizer that is not distributed; order[i]: as for write_optimizer. */
struct numbered {
    int order[PARAMS];
    bool has_copies;
    int other_group; /* parameter that is in the other group; -1: none */
    int extra;       /* numbers that norms have more than there are parameters; -1: none at all */
};

static bool is_of_group(const struct numbered *n, int i, int group)
{
    int own = one_layer[i].columns ? 0 : 1;
    return group == (i == n->other_group ? 1 - own : own);
}

static int first_of(const struct numbered *n, int i) { return 100 * (n->order[i] + 1); }

/* Writes {"state": {0: {"exp_avg": tensor, "exp_avg_sq": tensor}, ...}, "param_groups": [...]}. */
static void write_numbers(struct text *t, const struct numbered *n)
{
    int id = 0;
    pickle_write_empty_dict(t), pickle_write_mark(t);
    pickle_write_string(t, "state"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < PARAMS; i++) {
            if (!is_of_group(n, i, g)) continue;
            pickle_write_int(t, id++), pickle_write_empty_dict(t), pickle_write_mark(t);
            pickle_write_string(t, "exp_avg");
            write_view(t, "0", first_of(n, i) + 50, &one_layer[n->order[i]]);
            pickle_write_string(t, "exp_avg_sq");
            write_view(t, "0", first_of(n, i) + 25, &one_layer[n->order[i]]);
            pickle_write_setitems(t);
        }
    pickle_write_setitems(t);
    pickle_write_string(t, "param_groups"), pickle_write_empty_list(t), pickle_write_mark(t);
    for (int g = id = 0; g < 2; g++) {
        pickle_write_empty_dict(t), pickle_write_mark(t);
        pickle_write_string(t, "wd_mult"), pickle_write_float(t, 1 - g);
        pickle_write_string(t, "params"), pickle_write_empty_list(t), pickle_write_mark(t);
        for (int i = 0; i < PARAMS; i++)
            if (is_of_group(n, i, g) && !(g && n->extra < 0)) pickle_write_int(t, id++);
        for (int i = 0; g && i < n->extra; i++) pickle_write_int(t, id++);
        pickle_write_appends(t), pickle_write_setitems(t);
    }
    pickle_write_appends(t), pickle_write_setitems(t);
}

static void write_copies(struct text *t, const struct numbered *n)
{
    pickle_write_empty_dict(t), pickle_write_mark(t);
    pickle_write_string(t, "optimizer"), write_numbers(t, n);
    pickle_write_string(t, "fp32_from_fp16_params");
    pickle_write_empty_list(t), pickle_write_mark(t);
    for (int g = 0; g < 2; g++) {
        pickle_write_empty_list(t), pickle_write_mark(t);
        for (int i = 0; i < PARAMS; i++)
            if (is_of_group(n, i, g)) write_copy(t, first_of(n, i), &one_layer[n->order[i]]);
        pickle_write_appends(t);
    }
    pickle_write_appends(t), pickle_write_setitems(t);
}

/* Element e of data/0 is e, of data/1 e + 0.25. */
static const char *write_numbered(const struct numbered *n)
{
    const char *root = test_folder(), *rank = test_path(root, "mp_rank_00");
    static float values[2][1000];
    struct zip_writer zip = {0};
    struct text t = {0}, out = {0}, tail = {0};
    CHECK_STATUS(OK, file_make_dirs(rank));
    pickle_write_proto(&t), pickle_write_empty_dict(&t), pickle_write_mark(&t);
    for (int i = 0; i < PARAMS; i++) {
        pickle_write_string(&t, one_layer[i].name);
        write_view(&t, "0", 100 * (i + 1), &one_layer[i]);
    }
    pickle_write_string(&t, "optimizer");
    if (n->has_copies)
        write_copies(&t, n);
    else
        write_numbers(&t, n);
    pickle_write_setitems(&t), pickle_write_stop(&t);
    add_args(&t, &one_rank);
    add_entry(&zip, "archive/data.pkl", t.data, t.len, &out);
    add_entry(&zip, "archive/byteorder", "little", 6, &out);
    for (int k = 0; k < 2; k++) {
        for (int e = 0; e < 1000; e++) values[k][e] = (float)e + 0.25f * (float)k;
        add_entry(&zip, k ? "archive/data/1" : "archive/data/0", values[k], sizeof values[k], &out);
    }
    zip_writer_finish(&zip, &tail);
    text_add(&out, tail.data, tail.len);
    CHECK_STATUS(OK, file_write(test_path(rank, "model_optim_rng.pt"), out.data, out.len));
    text_release(&t), text_release(&out), text_release(&tail);
    zip_writer_release(&zip);
    return root;
}

TEST(numbered_state_of_megatrons_ranks_is_read)
{
    for (int has_copies = 0; has_copies < 2; has_copies++) {
        const struct numbered n = {{0, 1, 2, 3, 4, 5, 6, 7, 8}, has_copies, -1, 0};
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
        {{{0, 4, 2, 3, 1, 5, 6, 7, 8}, true, -1, 0}, "float32 copy of"},
        {{{8, 1, 2, 3, 4, 5, 6, 7, 0}, true, -1, 0}, "float32 copy of"},
        {{{5, 1, 2, 3, 4, 0, 6, 7, 8}, true, -1, 0}, "float32 copy of"},
        {{{3, 1, 2, 0, 4, 5, 6, 7, 8}, false, -1, 0},
         "the optimizer's state.0.exp_avg does not have the shape of embedding.word_embeddings"},
        {{{0, 1, 2, 3, 4, 5, 6, 7, 8}, true, 0, 0}, "does not have the shape of embedding."},
        {{{0, 1, 2, 3, 4, 5, 6, 7, 8}, false, 8, 0},
         "param_groups[0] has no entry 5, for output_layer"},
        {{{0, 1, 2, 3, 4, 5, 6, 7, 8}, false, -1, 2},
         "param_groups[1] has 5 parameters, expected 3"},
        {{{0, 1, 2, 3, 4, 5, 6, 7, 8}, false, -1, -1},
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
