// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_dist.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/convert.h"
#include "checkpoint/interop/megatron_args.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/torch_files.h"
#include "formats/torch_writer.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

/* Saved by megatron-core, with its optimizer, on one rank
 * (tests/oracle/megatron_checkpoint.py). */
#define MEGATRON  "tests/checkpoint/data/megatron"
#define ITERATION MEGATRON "/iter_0000003"

/* A copy of the iteration without `without`. */
static const char *copy_without(const char *without)
{
    const char *folder = test_folder();
    struct file_list l;
    struct text t = {0};
    CHECK_STATUS(OK, file_list_dir(&l, ITERATION));
    for (size_t i = 0; i < l.count; i++) {
        if (!strcmp(l.paths[i], without)) continue;
        CHECK_STATUS(OK, file_read(test_path(ITERATION, l.paths[i]), 1 << 20, &t));
        CHECK_STATUS(OK, file_write(test_path(folder, l.paths[i]), t.data, t.len));
    }
    file_list_release(&l);
    text_release(&t);
    return folder;
}

/* Without fsync: called often. */
static void write_file(const char *path, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, len, f) == len && !fclose(f));
}

static const struct sliced_tensor *find(const struct tensor_slices *s, enum param_id id, int layer,
                                        enum tensor_kind kind)
{
    return tensor_slices_find(s, &(struct tensor_name){id, layer, kind});
}

TEST(a_checkpoint_of_megatron_has_shape_weights_moments_and_counters)
{
    struct model_shape shape;
    struct tensor_slices p;
    struct torch_state state;
    CHECK(torch_files_kind(ITERATION) == TORCH_MEGATRON && torch_files_have_shape(ITERATION));
    CHECK_STATUS(OK, torch_files_shape(ITERATION, NULL, &shape));
    CHECK(shape.D == 16 && shape.L == 2 && shape.H == 4 && shape.G == 2 && shape.K == 4);
    CHECK(shape.F == 24 && shape.V == 64 && shape.tied && shape.max_context == 16);
    CHECK_STATUS(OK, megatron_dist_open(&p, ITERATION, &shape));
    CHECK(p.count == 20 && !find(&p, PARAM_head, -1, TENSOR_WEIGHT));
    const struct sliced_tensor *q = find(&p, PARAM_attn_q, 1, TENSOR_WEIGHT);
    CHECK(q && q->rows == 16 && q->columns == 16 && q->all[0].dtype == SAFETENSORS_F32);
    tensor_slices_release(&p);
    CHECK_STATUS(OK, megatron_dist_open_moments(&p, ITERATION, &shape, &state));
    CHECK(p.count == 40 && state.step == 3 && state.tokens_seen == 12 * 16 && state.samples == 12);
    CHECK(find(&p, PARAM_mlp_up, 0, TENSOR_EXP_AVG_SQ)->rows == 24);
    tensor_slices_release(&p);
    torch_state_release(&state);
}

/* The optimizer's float32 copies, rounded, are the model's own weights in bfloat16. */
TEST(float32_copies_of_weights_are_preferred)
{
    struct model_shape shape;
    struct tensor_slices p;
    float value[64];
    size_t fine = 0;
    CHECK_STATUS(OK, torch_files_shape(ITERATION, NULL, &shape));
    CHECK_STATUS(OK, megatron_dist_open(&p, ITERATION, &shape));
    CHECK_STATUS(OK,
                 tensor_slices_read(&p, find(&p, PARAM_embed, -1, TENSOR_WEIGHT), 0, 64, value));
    for (int i = 0; i < 64; i++) {
        uint32_t bits;
        memcpy(&bits, &value[i], 4);
        fine += (bits & 0xffff) != 0;
    }
    CHECK(fine > 32);
    tensor_slices_release(&p);
}

TEST(without_arguments_megatron_needs_a_config)
{
    const char *folder = copy_without("common.pt");
    struct model_shape shape;
    struct tensor_slices p;
    CHECK(!torch_files_have_shape(folder));
    CHECK_STATUS(MISSING, torch_files_shape(folder, NULL, &shape));
    CHECK_MESSAGE("the checkpoint has no args, and config.json was not found");
    CHECK_STATUS(MISSING, megatron_dist_open(&p, folder, NULL));
    CHECK_MESSAGE("do not determine the number of heads");
    CHECK_STATUS(OK, torch_files_shape(ITERATION, NULL, &shape));
    CHECK_STATUS(OK, megatron_dist_open(&p, folder, &shape));
    CHECK(p.count == 20);
    tensor_slices_release(&p);
    struct torch_state state;
    CHECK_STATUS(DATA, megatron_dist_open_moments(&p, folder, &shape, &state));
    CHECK_MESSAGE("no iteration");
    torch_state_release(&state);
}

TEST(corrupt_files_of_megatron_never_read_outside_them)
{
    static const char *const names[] = {".metadata", "common.pt"};
    struct text t = {0};
    struct model_shape shape;
    CHECK_STATUS(OK, torch_files_shape(ITERATION, NULL, &shape));
    for (int k = 0; k < 2; k++) {
        const char *folder = copy_without(""), *path = test_path(folder, names[k]);
        CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
        for (size_t i = 0; i < t.len; i += 23) {
            struct tensor_slices p;
            t.data[i] ^= 1;
            write_file(path, t.data, t.len);
            t.data[i] ^= 1;
            if (megatron_dist_open(&p, folder, &shape)) continue;
            for (size_t j = 0; j < p.count; j++) {
                size_t elements = (size_t)(p.tensors[j].rows * p.tensors[j].columns);
                float *room = heap((elements ? elements : 1) * sizeof *room);
                enum status st = tensor_slices_read(&p, &p.tensors[j], 0, elements, room);
                CHECK(!st || st == STATUS_DATA);
                free(room);
            }
            tensor_slices_release(&p);
        }
        for (size_t len = 0; len < t.len; len += 97) {
            struct tensor_slices p;
            write_file(path, t.data, len);
            CHECK_STATUS(DATA, megatron_dist_open(&p, folder, &shape));
        }
    }
    text_release(&t);
}

TEST(a_megatron_run_converts_to_a_run_with_its_optimizer)
{
    const char *to = test_path(test_folder(), "run");
    struct converted done;
    struct conversion c = {.from = ITERATION, .to = to, .target = CONVERT_NATIVE};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(done.step == 3 && done.num_tensors == 20);
}

/* A shard, whose elements are `first`, `first` + 1, ...; without dimensions an object. */
struct piece {
    const char *name;
    int dims;
    int64_t offset[4], shape[4];
    int first;
};
/* The shape in .metadata. */
struct whole {
    const char *name;
    int dims;
    int64_t shape[4];
};

#define DCP "torch.distributed.checkpoint.metadata"

static void begin_object(struct text *t, const char *module, const char *class)
{
    pickle_write_global(t, module, class);
    pickle_write_empty_tuple(t), pickle_write_newobj(t);
    pickle_write_empty_dict(t), pickle_write_mark(t);
}

static void end_object(struct text *t) { pickle_write_setitems(t), pickle_write_build(t); }

/* Adds the tensor's archive to the file, and its position to .metadata. */
static void write_piece(int fd, const char *path, uint64_t *at, struct text *metadata,
                        const struct piece *p)
{
    char no_name[] = "";
    struct torch_tensor t = {.name = no_name, .dtype = SAFETENSORS_F32, .num_dims = p->dims};
    struct torch_writer w;
    uint64_t size = 0;
    int64_t count = 1;
    for (int d = 0; d < p->dims; d++) t.shape[d] = p->shape[d], count *= p->shape[d];
    CHECK_STATUS(OK, torch_writer_open(&w, fd, path, *at, &t, 1));
    for (int64_t i = 0; i < count; i++) {
        float value = (float)(p->first + i);
        CHECK_STATUS(OK, torch_writer_put(&w, &value, sizeof value));
    }
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    begin_object(metadata, DCP, "MetadataIndex");
    pickle_write_string(metadata, "fqn"), pickle_write_string(metadata, p->name);
    pickle_write_string(metadata, "offset");
    if (p->dims)
        pickle_write_int_tuple(metadata, p->offset, p->dims);
    else
        pickle_write_none(metadata);
    end_object(metadata);
    begin_object(metadata, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    pickle_write_string(metadata, "relative_path"), pickle_write_string(metadata, "__0_0.distcp");
    pickle_write_string(metadata, "offset"), pickle_write_int(metadata, (int64_t)*at);
    pickle_write_string(metadata, "length"), pickle_write_int(metadata, (int64_t)size);
    end_object(metadata);
    *at += size;
}

/* common.pt: {"iteration": 3}, and args if the model has one layer. */
static void write_common(const char *folder, bool has_args)
{
    struct text pickle = {0}, archive = {0};
    pickle_write_proto(&pickle), pickle_write_empty_dict(&pickle), pickle_write_mark(&pickle);
    if (has_args) megatron_args_write(&pickle, &(struct megatron_args){0});
    pickle_write_string(&pickle, "iteration"), pickle_write_int(&pickle, 3);
    pickle_write_setitems(&pickle), pickle_write_stop(&pickle);
    torch_writer_pickle(&pickle, &archive);
    write_file(test_path(folder, "common.pt"), archive.data, archive.len);
    text_release(&pickle), text_release(&archive);
}

/* Writes a folder with these pieces, and common.pt without args. */
static const char *write_folder(const struct whole *wholes, size_t num_wholes,
                                const struct piece *pieces, size_t count)
{
    const char *folder = test_folder(), *path = test_path(folder, "__0_0.distcp");
    struct text t = {0};
    uint64_t at = 0;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    pickle_write_proto(&t), begin_object(&t, DCP, "Metadata");
    pickle_write_string(&t, "state_dict_metadata");
    pickle_write_empty_dict(&t), pickle_write_mark(&t);
    for (size_t i = 0; i < num_wholes; i++) {
        pickle_write_string(&t, wholes[i].name);
        begin_object(&t, DCP, "TensorStorageMetadata");
        pickle_write_string(&t, "size");
        pickle_write_int_tuple(&t, wholes[i].shape, wholes[i].dims);
        end_object(&t);
    }
    pickle_write_setitems(&t);
    pickle_write_string(&t, "storage_data"), pickle_write_empty_dict(&t), pickle_write_mark(&t);
    for (size_t i = 0; i < count; i++) write_piece(fd, path, &at, &t, &pieces[i]);
    pickle_write_setitems(&t), end_object(&t), pickle_write_stop(&t);
    close(fd);
    write_file(test_path(folder, ".metadata"), t.data, t.len);
    write_file(test_path(folder, "metadata.json"), "{}", 2);
    write_common(folder, false);
    text_release(&t);
    return folder;
}
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct model_shape small = {.V = 6, .D = 4, .L = 2, .H = 2, .G = 2, .K = 2, .F = 4};

static enum status open_moments(const char *folder, struct tensor_slices *s,
                                struct torch_state *state)
{
    torch_state_init(state);
    return megatron_dist_open_moments(s, folder, &small, state);
}

/* Whether the elements of the moment are from `first` on. */
static bool counts_from(const struct tensor_slices *s, enum param_id id, int layer, int first)
{
    const struct sliced_tensor *t = find(s, id, layer, TENSOR_EXP_AVG);
    float got[64];
    CHECK(t && t->rows * t->columns <= 64);
    size_t count = (size_t)(t->rows * t->columns);
    CHECK_STATUS(OK, tensor_slices_read(s, t, 0, count, got));
    for (size_t i = 0; i < count; i++)
        if ((int)got[i] != first + (int)i) return false;
    return count > 0;
}

#define MOMENT   "optimizer.state.exp_avg."
#define FC1      "decoder.layers.0.mlp.linear_fc1.weight"
#define FC2      "decoder.layers.mlp.linear_fc2.weight"
#define NORM     "decoder.layers.input_layernorm.weight"
#define PROJ     "decoder.layers.1.self_attention.linear_proj.weight"
#define NUMBER_0 "optimizer.distributed.dp_group_idx_0."

/* fully_sharded_model_space: fc2 and the norm are stacked; fc1 has halves of two tensor-parallel
 * ranks; of proj each rank has two columns. */
TEST(flattened_pieces_of_megatron_are_joined)
{
    static const struct whole wholes[] = {
        {FC1, 2, {8, 4}},    {MOMENT FC1, 3, {4, 1, 8}},
        {FC2, 3, {2, 4, 4}}, {MOMENT FC2, 4, {2, 1, 1, 16}},
        {NORM, 2, {2, 4}},   {MOMENT NORM, 3, {2, 1, 4}},
        {PROJ, 2, {4, 4}},   {MOMENT PROJ, 3, {1, 2, 8}},
    };
    static const struct piece pieces[] = {
        {MOMENT FC1, 3, {0, 0, 0}, {1, 1, 5}, 0},
        {MOMENT FC1, 3, {0, 0, 5}, {1, 1, 3}, 5},
        {MOMENT FC1, 3, {1, 0, 0}, {1, 1, 8}, 8},
        {MOMENT FC1, 3, {3, 0, 0}, {1, 1, 8}, 24},
        {MOMENT FC1, 3, {2, 0, 0}, {1, 1, 8}, 16},
        {MOMENT FC2, 4, {0, 0, 0, 0}, {1, 1, 1, 2}, 0},
        {MOMENT FC2, 4, {0, 0, 0, 2}, {1, 1, 1, 11}, 2},  /* ends of rows 0 and 3, and 2 rows */
        {MOMENT FC2, 4, {0, 0, 0, 13}, {1, 1, 1, 1}, 13}, /* within row 3 */
        {MOMENT FC2, 4, {0, 0, 0, 14}, {1, 1, 1, 2}, 14},
        {MOMENT FC2, 4, {1, 0, 0, 0}, {1, 1, 1, 16}, 100},
        {MOMENT NORM, 3, {0, 0, 0}, {1, 1, 3}, 0},
        {MOMENT NORM, 3, {0, 0, 3}, {1, 1, 1}, 3},
        {MOMENT NORM, 3, {1, 0, 0}, {1, 1, 4}, 10},
        {MOMENT PROJ, 3, {0, 0, 0}, {1, 1, 8}, 0},
        {MOMENT PROJ, 3, {0, 1, 0}, {1, 1, 3}, 100},
        {MOMENT PROJ, 3, {0, 1, 3}, {1, 1, 5}, 103},
    };
    static const float proj[] = {0, 1, 100, 101, 2, 3, 102, 103, 4, 5, 104, 105, 6, 7, 106, 107};
    const char *folder = write_folder(wholes, COUNT(wholes), pieces, COUNT(pieces));
    struct tensor_slices s;
    struct torch_state state;
    float got[16];
    CHECK_STATUS(OK, open_moments(folder, &s, &state));
    CHECK(s.count == 7 && state.step == 3);
    CHECK(counts_from(&s, PARAM_mlp_gate, 0, 0) && counts_from(&s, PARAM_mlp_up, 0, 16));
    CHECK(counts_from(&s, PARAM_mlp_down, 0, 0) && counts_from(&s, PARAM_mlp_down, 1, 100));
    CHECK(counts_from(&s, PARAM_attn_norm, 0, 0) && counts_from(&s, PARAM_attn_norm, 1, 10));
    const struct sliced_tensor *t = find(&s, PARAM_attn_out, 1, TENSOR_EXP_AVG);
    CHECK(t && t->rows == 4 && t->columns == 4);
    CHECK_STATUS(OK, tensor_slices_read(&s, t, 0, 16, got));
    CHECK(!memcmp(got, proj, sizeof proj));
    tensor_slices_release(&s);
    torch_state_release(&state);
}

TEST(flattened_pieces_must_fit_their_tensor)
{
    static const struct {
        int64_t whole[3], grid[4], offset[4], count;
    } bad[] = {
        {{2, 4, 4}, {2, 3, 1, 8}, {0, 0, 0, 0}, 8},     /* 3 does not divide 4 */
        {{2, 4, 4}, {2, 1, 1, 16}, {0, 1, 0, 0}, 16},   /* outside the grid */
        {{2, 4, 4}, {2, 1, 1, 16}, {0, 0, 0, 1}, 16},   /* beyond the local tensor */
        {{2, 4, 4}, {2, 1, 1, 16}, {4096, 0, 0, 0}, 16} /* beyond the last layer */
    };
    struct tensor_slices s;
    struct torch_state state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct whole wholes[] = {{FC2, 3, {0}}, {MOMENT FC2, 4, {0}}};
        struct piece piece = {MOMENT FC2, 4, {0}, {1, 1, 1, bad[i].count}, 0};
        memcpy(wholes[0].shape, bad[i].whole, sizeof bad[i].whole);
        memcpy(wholes[1].shape, bad[i].grid, sizeof bad[i].grid);
        memcpy(piece.offset, bad[i].offset, sizeof bad[i].offset);
        CHECK_STATUS(DATA, open_moments(write_folder(wholes, 2, &piece, 1), &s, &state));
        CHECK_MESSAGE("pieces do not fit the tensor " FC2);
        torch_state_release(&state);
    }
}

TEST(layers_of_megatron_are_limited)
{
    struct piece piece = {MOMENT NORM, 2, {4095, 0}, {2, 4}, 0};
    struct tensor_slices s;
    struct torch_state state;
    CHECK_STATUS(DATA, open_moments(write_folder(NULL, 0, &piece, 1), &s, &state));
    CHECK_MESSAGE("layers beyond the limit");
    torch_state_release(&state);
    piece.shape[0] = 1;
    CHECK_STATUS(OK, open_moments(write_folder(NULL, 0, &piece, 1), &s, &state));
    CHECK(counts_from(&s, PARAM_attn_norm, 4095, 0));
    tensor_slices_release(&s);
    torch_state_release(&state);
}

/* The parameters of a model with one layer, in the order of megatron-core's own layers. */
static const struct whole one_layer[] = {
    {"embedding.word_embeddings.weight", 2, {8, 4}},
    {"decoder.layers.0.input_layernorm.weight", 1, {4}},
    {"decoder.layers.0.self_attention.linear_proj.weight", 2, {4, 4}},
    {"decoder.layers.0.self_attention.linear_qkv.weight", 2, {12, 4}},
    {"decoder.layers.0.pre_mlp_layernorm.weight", 1, {4}},
    {"decoder.layers.0.mlp.linear_fc1.weight", 2, {8, 4}},
    {"decoder.layers.0.mlp.linear_fc2.weight", 2, {4, 4}},
    {"decoder.final_layernorm.weight", 1, {4}},
    {"output_layer.weight", 2, {8, 4}},
};
enum { PARAMS = COUNT(one_layer) };

/* Writes its weights and, as dp_reshardable, its optimizer: elements of parameter i are those from
 * 100 i on, of its moments 100 i + 50.  copies[i] is the parameter in the place of i. */
static const char *write_buckets(const int *copies)
{
#define BUCKET NUMBER_0 "gbuf_idx_0.dtype_(torch.float32, torch.float32).bucket_idx_0."
    static const char *const keys[] = {BUCKET "param", BUCKET "exp_avg", BUCKET "exp_avg_sq"};
    struct whole wholes[3];
    struct piece all[100];
    size_t count = 0;
    for (int i = 0; i < PARAMS; i++) {
        const struct whole *w = &one_layer[i];
        all[count++] =
            (struct piece){w->name, w->dims, {0}, {w->shape[0], w->shape[1]}, 100 * (i + 1)};
    }
    for (int k = 0; k < 3; k++) {
        int64_t end = 0;
        for (int i = PARAMS - 1; i >= 0; i--) {
            int64_t start = (end + 63) / 64 * 64;
            const int64_t *shape = one_layer[i].shape;
            if (start > end) all[count++] = (struct piece){keys[k], 1, {end}, {start - end}, 9999};
            end = start + shape[0] * (shape[1] ? shape[1] : 1);
            int first = 100 * (copies[i] + 1) + (k ? 50 : 0);
            all[count++] = (struct piece){keys[k], 1, {start}, {end - start}, first};
        }
        wholes[k] = (struct whole){keys[k], 1, {end}};
    }
    CHECK(count <= COUNT(all));
    const char *folder = write_folder(wholes, 3, all, count);
    write_common(folder, true);
    return folder;
}

TEST(moments_of_dp_reshardable_are_read)
{
    static const int order[PARAMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const char *folder = write_buckets(order);
    struct tensor_slices s;
    struct torch_state state;
    CHECK_STATUS(OK, megatron_dist_open_moments(&s, folder, NULL, &state));
    CHECK(s.count == 24 && state.step == 3);
    CHECK(counts_from(&s, PARAM_embed, -1, 150) && counts_from(&s, PARAM_head, -1, 950));
    CHECK(counts_from(&s, PARAM_attn_norm, 0, 250) && counts_from(&s, PARAM_mlp_norm, 0, 550));
    CHECK(counts_from(&s, PARAM_mlp_gate, 0, 650) && counts_from(&s, PARAM_mlp_up, 0, 666));
    tensor_slices_release(&s);
    torch_state_release(&state);
}

static bool log_has(const char *log, const char *part)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(log, 1 << 20, &t));
    bool found = strstr(t.data, part) != NULL;
    text_release(&t);
    return found;
}

/* Norms have equal sizes, and so have embedding and head: only the copies tell them apart. */
TEST(moments_in_another_order_than_the_weights_are_unsupported)
{
    static const int orders[2][PARAMS] = {{0, 4, 2, 3, 1, 5, 6, 7, 8}, {8, 1, 2, 3, 4, 5, 6, 7, 0}};
    for (int i = 0; i < 2; i++) {
        const char *folder = write_buckets(orders[i]), *log = test_path(test_folder(), "log");
        struct tensor_slices s;
        struct torch_state state;
        CHECK_STATUS(UNSUPPORTED, megatron_dist_open_moments(&s, folder, NULL, &state));
        CHECK_MESSAGE("is not the model's weight");
        torch_state_release(&state);
        CHECK_STATUS(OK, log_open(log));
        CHECK_STATUS(OK, megatron_dist_open(&s, folder, NULL));
        CHECK_STATUS(OK, log_open(NULL));
        CHECK(log_has(log, "loading the model's own weights, without the optimizer's float32"));
        CHECK(s.count == 12 && find(&s, PARAM_embed, -1, TENSOR_WEIGHT));
        tensor_slices_release(&s);
    }
}

TEST(moments_in_other_forms_are_unsupported)
{
    static const struct piece other[] = {
        {NUMBER_0 "param_state/shard_0_1", 0, {0}, {0}, 0},
        {"chained_0." NUMBER_0 "param_state/shard_0_1", 0, {0}, {0}, 0},
        {NUMBER_0 "gbuf_idx_0.dtype_bfloat16.bucket_idx_0.exp_avg", 1, {0}, {4}, 0},
        {"optimizer.state.momentum_buffer.decoder.final_layernorm.weight", 1, {0}, {4}, 0},
    };
    struct tensor_slices s;
    struct torch_state state;
    for (size_t i = 0; i < COUNT(other); i++) {
        const struct piece all[] = {{"decoder.final_layernorm.weight", 1, {0}, {4}, 0}, other[i]};
        const char *folder = write_folder(NULL, 0, all, 2);
        CHECK_STATUS(UNSUPPORTED, open_moments(folder, &s, &state));
        torch_state_release(&state);
        CHECK_STATUS(OK, megatron_dist_open(&s, folder, &small));
        CHECK(s.count == 1);
        tensor_slices_release(&s);
    }
}

/* Whether `convert` logs this of the folder. */
static bool warns(const char *folder, const char *warning)
{
    const char *log = test_path(test_folder(), "log");
    const char *to = test_path(test_folder(), "run");
    struct converted done;
    struct conversion c = {.from = folder, .to = to, .target = CONVERT_NATIVE};
    CHECK_STATUS(OK, log_open(log));
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK_STATUS(OK, log_open(NULL));
    CHECK(done.step < 0);
    return log_has(log, warning);
}

/* Of either format, and only where it would be resumed: opening the moments logs nothing. */
TEST(an_iteration_without_moments_is_reported)
{
    struct piece weights[PARAMS];
    struct tensor_slices s;
    struct torch_state state;
    for (int i = 0; i < PARAMS; i++) {
        const struct whole *w = &one_layer[i];
        weights[i] = (struct piece){w->name, w->dims, {0}, {w->shape[0], w->shape[1]}, i};
    }
    const char *folder = write_folder(NULL, 0, weights, PARAMS);
    write_common(folder, true);
    CHECK_STATUS(OK, megatron_dist_open_moments(&s, folder, NULL, &state));
    CHECK(!s.count && state.step == -1 && state.iteration == 3);
    tensor_slices_release(&s);
    CHECK(warns(folder, "found no optimizer moments, so iteration 3 is not resumed"));

    const char *ranks = test_folder(), *rank = test_path(ranks, "mp_rank_00");
    CHECK_STATUS(OK, file_make_dirs(rank));
    write_common(rank, true);
    CHECK(!rename(test_path(rank, "common.pt"), test_path(rank, "model_optim_rng.pt")));
    CHECK_STATUS(OK, torch_files_open_moments(&s, ranks, NULL, &state));
    CHECK(!s.count && state.step == -1 && state.iteration == 3);
    torch_state_release(&state);
}

TEST(moments_in_other_forms_are_ignored_where_nothing_is_resumed)
{
    static const int order[PARAMS] = {8, 1, 2, 3, 4, 5, 6, 7, 0};
    struct model_shape shape;
    struct torch_state state;
    struct model_files files;
    const char *folder = write_buckets(order), *log = test_path(test_folder(), "log");
    CHECK_STATUS(OK, torch_files_shape(folder, NULL, &shape));
    CHECK_STATUS(UNSUPPORTED, model_files_open_moments_any(&files, folder, &shape, &state));
    CHECK_MESSAGE("; save with Megatron-LM's --dist-ckpt-optim-fully-reshardable, or load only");
    CHECK_STATUS(OK, log_open(log));
    CHECK_STATUS(OK, model_files_open_known_moments(&files, folder, &shape, &state));
    CHECK_STATUS(OK, log_open(NULL));
    CHECK(log_has(log, "ignoring the optimizer's moments") && !log_has(log, "load only"));
    CHECK(model_files_are_empty(&files) && state.step == -1);
    model_files_close(&files);
}
