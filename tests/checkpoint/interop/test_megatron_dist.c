// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_dist.h"

#include "base/file.h"
#include "checkpoint/convert.h"
#include "checkpoint/interop/torch_files.h"
#include "test.h"

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
    CHECK(p.count == 40 && state.step == 3 && state.tokens_seen == 12 * 16);
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
    CHECK_STATUS(OK, torch_files_shape(ITERATION, NULL, &shape));
    CHECK_STATUS(OK, megatron_dist_open(&p, folder, &shape));
    CHECK(p.count == 20);
    tensor_slices_release(&p);
    CHECK_MESSAGE("do not determine the number of heads");
    struct torch_state state;
    CHECK_STATUS(DATA, megatron_dist_open_moments(&p, folder, &shape, &state));
    CHECK_MESSAGE("no iteration in common.pt");
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
