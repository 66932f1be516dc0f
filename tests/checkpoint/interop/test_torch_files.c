// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/interop/torch_files.h"
#include "test.h"

#define DATA_FOLDER "tests/checkpoint/data/"

static void put_copy(const char *folder, const char *from, const char *name)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK_STATUS(OK, file_read(test_path(from, name), 1 << 20, &t));
    CHECK_STATUS(OK, file_write(test_path(folder, name), t.data, t.len));
    text_release(&t);
}

TEST(torch_files_of_each_kind_are_detected_and_opened)
{
    static const char *const paths[] = {DATA_FOLDER "dcp", DATA_FOLDER "meta-llama3",
                                        DATA_FOLDER "meta-llama2/consolidated.00.pth"};
    static const size_t tensors[] = {21, 21, 20};
    for (int i = 0; i < 3; i++) {
        struct tensor_slices p;
        CHECK(torch_files_detect(paths[i]) && torch_files_have_shape(paths[i]));
        CHECK_STATUS(OK, torch_files_open(&p, paths[i], NULL));
        CHECK(p.count == tensors[i]);
        tensor_slices_release(&p);
    }
    CHECK(!torch_files_detect(DATA_FOLDER "tied"));
}

TEST(dcp_config_is_found_up_to_two_folders_above)
{
    const char *root = test_folder(), *step = test_path(root, "checkpoint/step-5");
    struct model_shape shape;
    put_copy(step, DATA_FOLDER "dcp", ".metadata");
    put_copy(step, DATA_FOLDER "dcp", "__0_0.distcp");
    put_copy(step, DATA_FOLDER "dcp", "__1_0.distcp");
    CHECK(!torch_files_have_shape(step));
    CHECK_STATUS(MISSING, torch_files_shape(step, NULL, &shape));
    CHECK_MESSAGE("neither config.json nor params.json");
    CHECK_MESSAGE("put the model's config.json into");
    put_copy(root, DATA_FOLDER "dcp", "params.json");
    CHECK_STATUS(OK, torch_files_shape(step, NULL, &shape));
    CHECK(shape.H == 4 && shape.G == 2 && shape.V == 40 && shape.F == 24 && !shape.tied);
    put_copy(step, DATA_FOLDER "tied", "config.json"); /* its own takes precedence */
    CHECK_STATUS(OK, torch_files_shape(step, NULL, &shape));
    CHECK(shape.V == 259);
}

/* Both fixtures are of one model (tests/oracle/meta_folder.py). */
TEST(dcp_and_meta_of_one_model_convert_to_the_same_bytes)
{
    const char *to = test_folder(), *from[] = {DATA_FOLDER "dcp", DATA_FOLDER "meta-llama3"};
    struct text bytes[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        struct converted done;
        const char *folder = test_path(to, i ? "b" : "a");
        struct conversion c = {
            .from = from[i], .to = folder, .target = CONVERT_HF, .keep_dtype = true};
        CHECK_STATUS(OK, convert_checkpoint(&c, &done));
        CHECK(done.dtype == SAFETENSORS_BF16 && done.num_tensors == 21);
        CHECK_STATUS(OK, file_read(test_path(folder, "model.safetensors"), 1 << 20, &bytes[i]));
    }
    CHECK(bytes[0].len == bytes[1].len && !memcmp(bytes[0].data, bytes[1].data, bytes[0].len));
    text_release(&bytes[0]), text_release(&bytes[1]);
}

static float *load_weights(const char *path, const struct model_shape *shape, size_t *elements)
{
    struct layout layout;
    struct shard pieces;
    struct checkpoint_found found;
    layout_init(&layout, shape, 1);
    shard_init(&pieces, &layout, 0, 1);
    float *weights = heap(layout.elements * sizeof *weights);
    struct checkpoint_state state = {.shape = shape,
                                     .world = comm_self(),
                                     .layout = &layout,
                                     .shard = &pieces,
                                     .weights = weights};
    CHECK_STATUS(OK, checkpoint_load(path, &state, NULL, &found));
    CHECK(!found.state && !found.has_moments);
    *elements = layout.elements;
    shard_release(&pieces);
    layout_release(&layout);
    return weights;
}

TEST(dcp_without_config_loads_if_the_shape_is_known)
{
    const char *step = test_path(test_folder(), "step-5");
    struct model_shape shape;
    size_t elements;
    put_copy(step, DATA_FOLDER "dcp", ".metadata");
    put_copy(step, DATA_FOLDER "dcp", "__0_0.distcp");
    put_copy(step, DATA_FOLDER "dcp", "__1_0.distcp");
    CHECK_STATUS(OK, torch_files_shape(DATA_FOLDER "meta-llama3", NULL, &shape));
    float *want = load_weights(DATA_FOLDER "meta-llama3", &shape, &elements);
    float *got = load_weights(step, &shape, &elements);
    CHECK(elements > 4000 && !memcmp(got, want, elements * sizeof *got));
    free(want), free(got);
}
