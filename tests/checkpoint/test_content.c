// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/content.h"
#include "test.h"

/* Writes a model of zeros into a new folder. */
static const char *write_content(struct content c, const char *folder, const char *name)
{
    struct model_shape shape = {.V = 9, .D = 8, .L = 1, .H = 2, .G = 2, .K = 4, .F = 12};
    struct layout layout;
    struct shard pieces;
    const char *path = test_path(folder, name);
    struct manifest m = {.folder = path};
    layout_init(&layout, &shape, 1);
    shard_init(&pieces, &layout, 0, 1);
    float *zeros = heap(layout.elements * sizeof *zeros);
    c.shape = &shape, c.layout = &layout, c.shard = &pieces, c.ranks = comm_self();
    c.weights = tensor_source_flat(zeros);
    CHECK_STATUS(OK, file_make_dirs(path));
    CHECK_STATUS(OK, content_write(&c, &m));
    manifest_release(&m);
    shard_release(&pieces);
    layout_release(&layout);
    free(zeros);
    return path;
}

static bool has_file(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    bool exists = file_exists(path);
    free(path);
    return exists;
}

TEST(plain_folder_has_hugging_faces_files_only)
{
    const char *folder = test_folder();
    struct content c = {.dtype = SAFETENSORS_BF16, .plain = true, .bos = 1, .eos = -1};
    const char *path = write_content(c, folder, "plain");
    char *config = file_join(path, "config.json");
    struct json *v;
    CHECK(has_file(path, "model.safetensors") && !has_file(path, "model.safetensors.index.json"));
    CHECK(!has_file(path, "state.json") && !has_file(path, "manifest.json"));
    CHECK_STATUS(OK, json_read(config, 1 << 20, &v));
    CHECK(json_number(json_get(v, "bos_token_id")) == 1);
    CHECK(json_is_null(json_get(v, "eos_token_id")));
    CHECK(!strcmp(json_string(json_get(v, "torch_dtype")), "bfloat16"));
    json_free(v);
    free(config);
}

TEST(checkpoint_folder_has_state_and_an_index_even_for_one_file)
{
    const char *folder = test_folder();
    struct content c = {.step = 12, .train = "{\"tokens_seen\": 5}", .bos = -1, .eos = -1};
    c.dtype = SAFETENSORS_F32;
    const char *path = write_content(c, folder, "step");
    char *state = file_join(path, "state.json");
    struct json *v;
    CHECK(has_file(path, "model-00001-of-00001.safetensors"));
    CHECK(has_file(path, "model.safetensors.index.json"));
    CHECK_STATUS(OK, json_read(state, 1 << 20, &v));
    CHECK(json_number(json_get(v, "step")) == 12);
    CHECK(json_number(json_get(json_get(v, "train"), "tokens_seen")) == 5);
    json_free(v);
    free(state);
}
