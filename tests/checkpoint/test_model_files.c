// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_files.h"

#include "checkpoint/rig.h"

/* A file of one tensor of 1 number. */
static void write_one(const char *folder, const char *file, const char *tensor, float value)
{
    struct safetensors_tensor t = {
        .name = (char *)(uintptr_t)tensor, .num_dims = 1, .shape = {1}, .dtype = SAFETENSORS_F32};
    struct text bytes = {0};
    uint64_t total;
    safetensors_header(&t, 1, &bytes, &total);
    text_add(&bytes, &value, sizeof value);
    CHECK_STATUS(OK, file_write(test_path(folder, file), bytes.data, bytes.len));
    text_release(&bytes);
}

static const char *with_index(const char *index)
{
    const char *folder = test_folder();
    write_one(folder, "a.safetensors", "a", 1);
    write_one(folder, "b.safetensors", "b", 2);
    CHECK_STATUS(
        OK, file_write(test_path(folder, "model.safetensors.index.json"), index, strlen(index)));
    return folder;
}

TEST(a_folder_of_one_file_or_of_several_is_one_set_of_tensors)
{
    struct model_files m;
    const struct safetensors *file;
    const char *folder = with_index("{\"metadata\": {\"total_size\": 8.0}, \"weight_map\": "
                                    "{\"a\": \"a.safetensors\", \"b\": \"b.safetensors\"}}");
    CHECK_STATUS(OK, model_files_open(&m, folder));
    CHECK(m.count == 2 && !strcmp(m.folder, folder));
    const struct safetensors_tensor *b = model_files_find(&m, "b", &file);
    float value;
    CHECK(b && file == &m.files[1] && !model_files_find(&m, "c", &file));
    CHECK_STATUS(OK, safetensors_read_f32(file, b, &value));
    CHECK(value == 2);
    model_files_close(&m);
    const char *single = test_folder();
    write_one(single, "model.safetensors", "a", 3);
    CHECK_STATUS(OK, model_files_open(&m, single));
    CHECK(m.count == 1 && model_files_find(&m, "a", &file));
    model_files_close(&m);
}

TEST(a_folder_without_weights_says_what_it_lacks)
{
    struct model_files m;
    CHECK_STATUS(MISSING, model_files_open(&m, test_folder()));
    CHECK_MESSAGE("neither model.safetensors.index.json nor model.safetensors");
    CHECK(m.count == 0);
}

TEST(an_index_may_not_leave_its_folder)
{
    static const char *const names[] = {"../a.safetensors",      "/etc/passwd", "./a.safetensors",
                                        "x/../../a.safetensors", "..",          "",
                                        "sub/a.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model_files m;
        struct text index = {0};
        text_addf(&index, "{\"weight_map\": {\"a\": \"%s\"}}", names[i]);
        CHECK_STATUS(DATA, model_files_open(&m, with_index(index.data)));
        CHECK_MESSAGE("the index names the file");
        text_release(&index);
    }
}

TEST(an_index_that_does_not_tell_the_truth_is_refused)
{
    struct model_files m;
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": {\"a\": 1}}")));
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": []}")));
    CHECK_MESSAGE("no weight_map");
    CHECK_STATUS(DATA, model_files_open(&m, with_index("[]")));
    CHECK_STATUS(DATA, model_files_open(&m, with_index("")));
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": {\"c\": "
                                                       "\"a.safetensors\"}}")));
    CHECK_MESSAGE("the index says that it holds c");
    CHECK_STATUS(MISSING, model_files_open(&m, with_index("{\"weight_map\": {\"c\": "
                                                          "\"c.safetensors\"}}")));
    CHECK_MESSAGE("c.safetensors");
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": {\"a\": "
                                                       "\"model.safetensors.index.json\"}}")));
}

TEST(a_tensor_is_read_run_by_run_in_either_type)
{
    struct saved s;
    struct model_files m;
    struct tensor_reader r;
    float got[7];
    bf16 half[7];
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    const struct tensor_place *t = &s.layout.tensors[0];
    CHECK_STATUS(OK, model_files_open(&m, step));
    CHECK_STATUS(DATA, tensor_reader_open(&r, &m, t, "none"));
    CHECK_MESSAGE("the tensor none is missing");
    CHECK_STATUS(DATA, tensor_reader_open(&r, &m, t, "model.norm.weight"));
    CHECK_MESSAGE("tensor model.norm.weight is [16, 1], the model's is [37, 16]");
    CHECK_STATUS(OK, tensor_reader_open(&r, &m, t, "model.embed_tokens.weight"));
    for (size_t first = t->elements - 7; first > 7; first -= 5) {
        CHECK_STATUS(OK, tensor_reader_read(&r, first, 7, F32, got));
        CHECK_STATUS(OK, tensor_reader_read(&r, first, 7, BF16, half));
        CHECK(!memcmp(got, s.weights + t->offset + first, sizeof got));
        for (int i = 0; i < 7; i++) CHECK(half[i] == bf16_from_f32(got[i]));
        if (first % 2) tensor_reader_close(&r);
    }
    tensor_reader_close(&r);
    model_files_close(&m);
    saved_close(&s);
}
