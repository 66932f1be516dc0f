// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/nxdt.h"

#include "base/file.h"
#include "checkpoint/convert.h"
#include "checkpoint/rig.h"

#include <unistd.h>

/* Saved by torch itself: see tests/oracle/nxdt_folder.py. */
#define FUSED "tests/checkpoint/data/nxdt/fused"
#define XSER  "tests/checkpoint/data/nxdt/xser"
#define FIRST "model/dp_rank_00_tp_rank_00_pp_rank_00.pt"

/* The oracle's values for a model of that shape. */
static void open_oracle_model(struct saved *s)
{
    saved_open(s, false);
    shard_release(&s->shard);
    layout_release(&s->layout);
    s->shape.V = 40;
    layout_init(&s->layout, &s->shape, 1);
    shard_init(&s->shard, &s->layout, 0, 1);
    s->weights = heap_grow(s->weights, s->layout.elements, sizeof *s->weights);
    for (int j = 0; j < s->layout.num_tensors; j++)
        for (size_t i = 0; i < s->layout.tensors[j].elements; i++)
            s->weights[s->layout.tensors[j].offset + i] =
                (float)(int)((31 * (size_t)j + i) % 255) / 64 - 127.0f / 64;
}

static enum status open_folder(const char *folder, const struct model_shape *shape)
{
    struct tensor_slices p;
    enum status st = nxdt_open(&p, folder, shape);
    if (!st) tensor_slices_release(&p);
    return st;
}

static void copy_file(const char *from, const char *to)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(from, 1 << 20, &t));
    CHECK_STATUS(OK, file_write(to, t.data, t.len));
    text_release(&t);
}

/* A copy to damage. */
static const char *copy_of(const char *from)
{
    const char *to = test_path(test_folder(), "run/checkpoints/tag");
    struct file_list names;
    CHECK_STATUS(OK, file_make_dirs(test_path(to, "model")));
    copy_file(test_path(from, "config.json"), test_path(to, "config.json"));
    CHECK_STATUS(OK, file_list_dir(&names, test_path(from, "model")));
    for (size_t i = 0; i < names.count; i++) {
        const char *a = test_path(test_path(from, "model"), names.paths[i]);
        const char *b = test_path(test_path(to, "model"), names.paths[i]);
        struct file_list inside;
        if (!file_is_dir(a)) {
            copy_file(a, b);
            continue;
        }
        CHECK_STATUS(OK, file_make_dirs(b));
        CHECK_STATUS(OK, file_list_dir(&inside, a));
        for (size_t k = 0; k < inside.count; k++)
            copy_file(test_path(a, inside.paths[k]), test_path(b, inside.paths[k]));
        file_list_release(&inside);
    }
    file_list_release(&names);
    return to;
}

TEST(query_blocks_attend_to_the_ranks_key_head)
{
    /* 64 query heads and 8 key heads on 32 ranks: rank 9 has heads 10 and 11 of group 1. */
    const struct nxdt_heads interleaved = {32, 4, 8, false}, adjacent = {32, 4, 8, true},
                            unreplicated = {8, 1, 8, false};
    CHECK(nxdt_query_block(&interleaved, 9) == 5 && nxdt_key_block(&interleaved, 9) == 1);
    for (int64_t r = 0; r < 32; r++) {
        CHECK(nxdt_query_block(&interleaved, r) / 4 == nxdt_key_block(&interleaved, r));
        CHECK(nxdt_query_block(&adjacent, r) == r && nxdt_key_block(&adjacent, r) == r / 4);
    }
    for (int64_t r = 0; r < 8; r++)
        CHECK(nxdt_query_block(&unreplicated, r) == r && nxdt_key_block(&unreplicated, r) == r);
}

TEST(nxdt_fixtures_have_the_oracles_values)
{
    static const char *const folders[] = {FUSED, XSER, FUSED "/model"};
    struct saved s;
    open_oracle_model(&s);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct loaded_state l;
        CHECK_STATUS(OK, load_into(&l, &s, folders[i]));
        CHECK(same_tensors(&s.layout, l.buffers[0], s.weights) && !l.found.has_moments);
        loaded_release(&l);
        const char *to = test_path(test_folder(), "hf");
        struct conversion c = {.from = folders[i], .to = to, .keep_dtype = true};
        struct converted done;
        CHECK_STATUS(OK, convert_checkpoint(&c, &done));
        CHECK(done.dtype == SAFETENSORS_BF16 && done.num_tensors == s.layout.num_tensors);
        CHECK_STATUS(OK, load_into(&l, &s, to));
        CHECK(same_tensors(&s.layout, l.buffers[0], s.weights));
        loaded_release(&l);
    }
    saved_close(&s);
}

TEST(truncated_nxdt_rank_file_is_rejected_by_name)
{
    static const char *const cases[][2] = {
        {FUSED, FIRST}, {XSER, FIRST}, {XSER, FIRST ".tensors/tensor_1.pt"}};
    struct saved s;
    open_oracle_model(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *folder = copy_of(cases[i][0]), *path = test_path(folder, cases[i][1]);
        uint64_t size;
        CHECK_STATUS(OK, file_size(path, &size));
        CHECK_STATUS(OK, open_folder(folder, &s.shape));
        while (size--) {
            CHECK(truncate(path, (off_t)size) == 0);
            CHECK_STATUS(DATA, open_folder(folder, &s.shape));
            CHECK_MESSAGE(strrchr(path, '/') + 1);
        }
        CHECK(unlink(path) == 0);
        CHECK(open_folder(folder, &s.shape) != STATUS_OK);
    }
    saved_close(&s);
}

/* Offset of a tensor's data in a rank's file. */
static uint64_t offset_of(const char *path, const char *name)
{
    struct text bytes = {0};
    struct torch_archive a;
    struct torch_tensors t;
    uint64_t at = 0;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
    CHECK_STATUS(OK, torch_archive_open(&a, (unsigned char *)bytes.data, bytes.len, path));
    CHECK_STATUS(OK, torch_archive_tensors(&a, &t));
    for (size_t i = 0; i < t.count; i++)
        if (!strcmp(t.all[i].name, name))
            at = (uint64_t)(t.all[i].data - (unsigned char *)bytes.data);
    CHECK(at);
    torch_tensors_release(&t);
    torch_archive_close(&a);
    text_release(&bytes);
    return at;
}

TEST(replicated_key_heads_must_be_equal)
{
    static const char name[] = "model.layers.0.self_attn.qkv_proj.weight_qkv";
    struct saved s;
    open_oracle_model(&s);
    const char *folder = copy_of(FUSED);
    const char *path = test_path(folder, "model/dp_rank_00_tp_rank_03_pp_rank_00.pt");
    /* Rows of 16 elements: 4 of the query head, 4 of the key head, 4 of the value head. */
    uint64_t at = offset_of(path, name);
    flip(path, at + 3 * 32, 1);
    CHECK_STATUS(OK, open_folder(folder, &s.shape));
    flip(path, at + 5 * 32 + 2, 1);
    CHECK_STATUS(DATA, open_folder(folder, &s.shape));
    CHECK_MESSAGE("differs from its copies on other ranks");
    flip(path, at + 5 * 32 + 2, 1);
    flip(path, at + 11 * 32 + 31, 128);
    CHECK_STATUS(DATA, open_folder(folder, &s.shape));
    CHECK_MESSAGE(name);
    saved_close(&s);
}

TEST(nxdt_files_of_another_model_are_rejected)
{
    struct saved s;
    open_oracle_model(&s);
    CHECK_STATUS(MISSING, open_folder(FUSED, NULL));
    CHECK_MESSAGE("config.json");
    struct model_shape other = s.shape;
    other.G = 1;
    CHECK_STATUS(DATA, open_folder(FUSED, &other));
    CHECK_MESSAGE("each of 1 key/value heads should be on 4 of 4 ranks");
    other = s.shape, other.K = 8;
    CHECK_STATUS(DATA, open_folder(FUSED, &other));
    other = s.shape, other.L = 1;
    CHECK_STATUS(DATA, open_folder(FUSED, &other));
    CHECK_MESSAGE("the model has only 1 layers");
    struct model_shape none;
    const char *folder = copy_of(FUSED);
    CHECK(unlink(test_path(folder, "config.json")) == 0);
    CHECK_STATUS(MISSING, checkpoint_read_shape(folder, &none));
    CHECK_MESSAGE("config.json");
    struct loaded_state l; /* a run knows its model's shape */
    CHECK_STATUS(OK, load_into(&l, &s, folder));
    CHECK(same_tensors(&s.layout, l.buffers[0], s.weights));
    loaded_release(&l);
    saved_close(&s);
}

TEST(nxdt_optimizer_state_is_reported_as_unsupported)
{
    struct saved s;
    open_oracle_model(&s);
    const char *folder = copy_of(FUSED);
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "optim")));
    copy_file(test_path(folder, FIRST),
              test_path(folder, "optim/dp_rank_00_tp_rank_00_pp_rank_00.pt"));
    CHECK_STATUS(UNSUPPORTED, try_load(&s, folder));
    CHECK_MESSAGE("NxD Training's optimizer state");
    struct loaded_state l;
    CHECK_STATUS(OK, load_into(&l, &s, FUSED));
    l.state.exp_avg = l.state.exp_avg_sq = NULL; /* weights only */
    json_free(l.found.state);
    CHECK_STATUS(OK, checkpoint_load(folder, &l.state, NULL, &l.found));
    loaded_release(&l);
    const char *native = test_path(test_folder(), "native");
    struct conversion c = {.from = folder, .to = native, .target = CONVERT_NATIVE};
    struct converted done;
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(done.step == -1);
    saved_close(&s);
}
