// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_shards.h"

#include "checkpoint/interop/model_files.h"
#include "checkpoint/rig.h"

static const char *const plain[] = {""};

/* Writes the weights of `s` to files of at most `most` bytes; returns the number of files. */
static size_t write_shards(const struct saved *s, uint64_t most, enum safetensors_dtype dtype,
                           const char *folder)
{
    struct tensor_source source = tensor_source_flat(s->weights);
    struct block_exchange x;
    struct manifest m = {.folder = folder, .step = 1};
    struct safetensors_shards how = {.stem = "model",
                                     .parts = plain,
                                     .sources = &source,
                                     .num_parts = 1,
                                     .dtype = dtype,
                                     .max_bytes = most,
                                     .index = INDEX_ALWAYS,
                                     .exchange = &x};
    struct file_list names;
    size_t files = 0;
    CHECK_STATUS(OK, block_exchange_open(&x, &s->layout, &s->shard, comm_self()));
    CHECK_STATUS(OK, safetensors_shards_write(&how, &m));
    block_exchange_close(&x);
    manifest_release(&m);
    CHECK_STATUS(OK, file_list_dir(&names, folder));
    for (size_t i = 0; i < names.count; i++) files += strstr(names.paths[i], "-of-") != NULL;
    file_list_release(&names);
    return files;
}

static void check_tensors(const struct saved *s, const char *folder)
{
    struct model_files m;
    size_t tensors = 0;
    float *got = heap(s->layout.elements * sizeof *got);
    CHECK_STATUS(OK, model_files_open(&m, folder));
    for (size_t f = 0; f < m.count; f++) {
        tensors += m.files[f].count;
        for (size_t i = 1; i < m.files[f].count; i++)
            CHECK(strcmp(m.files[f].tensors[i - 1].name, m.files[f].tensors[i].name) < 0);
    }
    CHECK(tensors == (size_t)s->layout.num_tensors);
    for (int i = 0; i < s->layout.num_tensors; i++) {
        const struct safetensors *file;
        char name[96];
        layout_tensor_name(&s->layout.tensors[i], true, name);
        const struct safetensors_tensor *t = model_files_find(&m, name, &file);
        CHECK(t && t->elements == s->layout.tensors[i].elements);
        CHECK_STATUS(
            OK, safetensors_read_part(file, t, 0, t->elements, got + s->layout.tensors[i].offset));
    }
    CHECK(same_tensors(&s->layout, got, s->weights));
    model_files_close(&m);
    free(got);
}

TEST(model_is_the_same_in_any_number_of_shards)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = test_folder();
    CHECK(write_shards(&s, UINT64_MAX, SAFETENSORS_F32, folder) == 1);
    CHECK(has_file(folder, "model-00001-of-00001.safetensors"));
    check_tensors(&s, folder);
    folder = test_folder();
    CHECK(write_shards(&s, 4000, SAFETENSORS_F32, folder) > 2);
    check_tensors(&s, folder);
    /* A tensor larger than the limit has a file of its own. */
    folder = test_folder();
    CHECK(write_shards(&s, 1, SAFETENSORS_F32, folder) == (size_t)s.layout.num_tensors);
    check_tensors(&s, folder);
    saved_close(&s);
}

/* Blocks have 2^20 elements: while one is written, the next one is assembled. */
TEST(a_file_of_several_blocks_holds_every_tensor)
{
    struct saved s;
    struct model_shape shape = small_shape();
    shape.V = 3 * TENSOR_SOURCE_ELEMENTS / shape.D + 1;
    saved_open_shape(&s, &shape);
    const char *folder = test_folder();
    CHECK(write_shards(&s, UINT64_MAX, SAFETENSORS_F32, folder) == 1);
    check_tensors(&s, folder);
    saved_close(&s);
}

TEST(index_has_the_total_size_of_the_tensors)
{
    struct saved s;
    struct json *root;
    int64_t total;
    saved_open(&s, true);
    const char *folder = test_folder();
    write_shards(&s, 4000, SAFETENSORS_BF16, folder);
    CHECK_STATUS(OK, json_read(test_path(folder, "model.safetensors.index.json"), 1 << 20, &root));
    CHECK_STATUS(OK, json_get_int(json_get(root, "metadata"), "total_size", 0, 1 << 30, &total));
    CHECK(total == 2 * s.layout.parameters);
    CHECK(json_count(json_get(root, "weight_map")) == (size_t)s.layout.num_tensors);
    CHECK(!json_get(json_get(root, "weight_map"), "lm_head.weight"));
    json_free(root);
    saved_close(&s);
}

static enum status failing_source(void *context, const struct shard_run *p, size_t first,
                                  size_t count, const float **values)
{
    *values = context;
    FAIL(DEVICE, "elements %zu to %zu of tensor %d were lost", first, first + count, p->tensor);
}

TEST(failing_tensor_source_fails_the_write)
{
    struct saved s;
    struct block_exchange x;
    saved_open(&s, false);
    struct manifest m = {.folder = test_folder(), .step = 1};
    struct tensor_source source = {failing_source, NULL};
    struct safetensors_shards how = {.stem = "model",
                                     .parts = plain,
                                     .sources = &source,
                                     .num_parts = 1,
                                     .dtype = SAFETENSORS_F32,
                                     .max_bytes = 1 << 20,
                                     .index = INDEX_NEVER,
                                     .exchange = &x};
    CHECK_STATUS(OK, block_exchange_open(&x, &s.layout, &s.shard, comm_self()));
    CHECK_STATUS(DEVICE, safetensors_shards_write(&how, &m));
    CHECK_MESSAGE("were lost");
    block_exchange_close(&x);
    manifest_release(&m);
    saved_close(&s);
}
