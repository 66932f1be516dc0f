// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/model_files.h"

#include "checkpoint/interop/pytorch_bin.h"
#include "checkpoint/rig.h"

#include <unistd.h>

/* Writes a file with a tensor of one element. */
static void write_one(const char *folder, const char *file, const char *tensor, float value)
{
    struct safetensors_tensor t = {
        .name = (char *)(uintptr_t)tensor, .num_dims = 1, .shape = {1}, .dtype = SAFETENSORS_F32};
    struct text bytes = {0};
    uint64_t total;
    safetensors_build_header(&t, 1, &bytes, &total);
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

TEST(single_and_sharded_folders_open_as_one_set_of_tensors)
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
    CHECK_STATUS(OK, safetensors_read_part(file, b, 0, 1, &value));
    CHECK(value == 2);
    model_files_close(&m);
    const char *single = test_folder();
    write_one(single, "model.safetensors", "a", 3);
    CHECK_STATUS(OK, model_files_open(&m, single));
    CHECK(m.count == 1 && model_files_find(&m, "a", &file));
    model_files_close(&m);
}

TEST(a_single_file_may_not_be_a_link_out_of_the_folder)
{
    struct model_files m;
    struct tensor_slices slices;
    const struct model_shape shape = {.H = 1, .G = 1, .K = 2, .F = 1};
    const char *folder = test_folder(), *file = test_path(folder, "model.safetensors");
    const char *elsewhere = test_folder();
    write_one(elsewhere, "other.safetensors", "a", 3);
    CHECK(symlink(test_path(elsewhere, "other.safetensors"), file) == 0);
    write_one(folder, "beside.safetensors", "a", 3);
    CHECK(symlink("beside.safetensors", test_path(folder, "pytorch_model.bin")) == 0);
    CHECK_STATUS(DATA, model_files_open(&m, folder));
    CHECK_MESSAGE("/model.safetensors: a link to ");
    CHECK(unlink(file) == 0 && symlink("beside.safetensors", file) == 0);
    CHECK_STATUS(OK, model_files_open(&m, folder));
    model_files_close(&m);
    CHECK_STATUS(DATA, pytorch_bin_open(&slices, folder, &shape)); /* not a torch file */
    CHECK(!strstr(status_message(), "a link to "));
    file = test_path(folder, "pytorch_model.bin");
    CHECK(unlink(file) == 0 && symlink("/dev/null", file) == 0);
    CHECK_STATUS(DATA, pytorch_bin_open(&slices, folder, &shape));
    CHECK_MESSAGE("/pytorch_model.bin: a link to /dev/null, outside the model's folder");
}

TEST(folder_without_weights_names_the_missing_files)
{
    struct model_files m;
    CHECK_STATUS(MISSING, model_files_open(&m, test_folder()));
    CHECK_MESSAGE("neither model.safetensors.index.json nor model.safetensors");
    CHECK(m.count == 0);
}

TEST(index_may_not_name_files_outside_its_folder)
{
    static const char *const names[] = {"../a.safetensors",      "/etc/passwd", "./a.safetensors",
                                        "x/../../a.safetensors", "..",          "",
                                        "sub/a.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model_files m;
        struct text index = {0};
        text_addf(&index, "{\"weight_map\": {\"a\": \"%s\"}}", names[i]);
        CHECK_STATUS(DATA, model_files_open(&m, with_index(index.data)));
        CHECK_MESSAGE("weight_map names");
        text_release(&index);
    }
}

TEST(index_that_contradicts_its_files_is_rejected)
{
    struct model_files m;
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": {\"a\": 1}}")));
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": []}")));
    CHECK_MESSAGE("weight_map is missing");
    CHECK_STATUS(DATA, model_files_open(&m, with_index("[]")));
    CHECK_STATUS(DATA, model_files_open(&m, with_index("")));
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": {\"c\": "
                                                       "\"a.safetensors\"}}")));
    CHECK_MESSAGE("tensor c is missing, but the index lists it");
    CHECK_STATUS(MISSING, model_files_open(&m, with_index("{\"weight_map\": {\"c\": "
                                                          "\"c.safetensors\"}}")));
    CHECK_MESSAGE("c.safetensors");
    CHECK_STATUS(DATA, model_files_open(&m, with_index("{\"weight_map\": {\"a\": "
                                                       "\"model.safetensors.index.json\"}}")));
}

TEST(truncated_index_is_rejected)
{
    static const char whole[] = "{\"metadata\": {\"total_size\": 8}, \"weight_map\": "
                                "{\"a\": \"a.safetensors\", \"b\": \"b.safetensors\"}}";
    const char *folder = with_index(whole);
    const char *path = test_path(folder, "model.safetensors.index.json");
    struct model_files m;
    for (size_t len = sizeof whole - 1; len-- > 0;) {
        CHECK(!truncate(path, (off_t)len));
        CHECK_STATUS(DATA, model_files_open(&m, folder));
        CHECK_MESSAGE("model.safetensors.index.json: not valid JSON");
    }
}

TEST(opening_a_tensor_checks_its_name_and_shape)
{
    struct saved s;
    struct model_files m;
    struct tensor_reader r;
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    const struct tensor_slot *t = &s.layout.tensors[0];
    CHECK_STATUS(OK, model_files_open(&m, step));
    CHECK_STATUS(DATA, model_files_open_tensor(&m, t, "none", &r));
    CHECK_MESSAGE("tensor none is missing");
    CHECK_STATUS(DATA, model_files_open_tensor(&m, t, "model.norm.weight", &r));
    CHECK_MESSAGE("tensor model.norm.weight has shape [16, 1], expected [37, 16]");
    model_files_close(&m);
    saved_close(&s);
}

/* Saved by torch itself on two ranks (tests/oracle/dcp_state.py). */
#define RUN "tests/checkpoint/data/dcp-state"

TEST(torch_tensors_have_hugging_face_names_and_their_files)
{
    const struct model_shape shape = {.V = 11, .D = 8, .L = 1, .H = 2, .G = 1, .K = 4, .F = 8};
    struct model_files m, moments;
    struct torch_state state;
    struct model_tensor t;
    float whole[64], part[8];
    CHECK_STATUS(OK, model_files_open_any(&m, RUN, &shape));
    CHECK_STATUS(OK, model_files_open_moments_any(&moments, RUN, &shape, &state));
    CHECK(model_files_num_tensors(&m) == 12 && model_files_num_tensors(&moments) == 24);
    CHECK(model_files_num_files(&m) == 2 && !model_files_are_empty(&moments));
    CHECK(!strcmp(model_files_file(&m, 0).name, "__0_0.distcp"));
    CHECK(model_files_file(&m, 0).num_tensors == 12 && model_files_file(&m, 1).bytes == 105881);
    for (size_t i = 0; i < 12; i++) {
        const struct model_tensor one = model_files_tensor(&m, i);
        CHECK(model_files_named(&m, one.is.name, &t) && t.reader.sliced == one.reader.sliced);
        CHECK(!strncmp(one.file, "__", 2) && one.is.dtype == SAFETENSORS_F32);
    }
    CHECK(!model_files_named(&m, "model.norm.weight.exp_avg", &t));
    CHECK(model_files_named(&moments, "model.layers.0.self_attn.q_proj.weight.exp_avg", &t));
    CHECK(t.is.num_dims == 2 && t.is.shape[0] == 8 && t.is.elements == 64);
    CHECK_STATUS(OK, tensor_reader_read(&t.reader, 0, 64, F32, whole));
    CHECK_STATUS(OK, tensor_reader_read(&t.reader, 24, 8, F32, part));
    CHECK(!memcmp(whole + 24, part, sizeof part));
    tensor_reader_close(&t.reader);
    torch_state_release(&state);
    model_files_close(&m), model_files_close(&moments);
}

TEST(missing_torch_tensor_has_its_layer_in_the_message)
{
    const struct model_shape shape = {.V = 11, .D = 8, .L = 2, .H = 2, .G = 1, .K = 4, .F = 8};
    struct layout layout;
    struct model_files m;
    struct tensor_reader r;
    layout_init(&layout, &shape, 1);
    CHECK_STATUS(OK, model_files_open_any(&m, RUN, &shape));
    for (int i = 0; i < layout.num_tensors; i++) {
        const struct tensor_slot *t = &layout.tensors[i];
        if (t->layer != 1 || t->id != PARAM_attn_q) continue;
        const char *name = "model.layers.1.self_attn.q_proj.weight";
        CHECK_STATUS(DATA, model_files_open_tensor(&m, t, name, &r));
        CHECK_MESSAGE("tensor model.layers.1.self_attn.q_proj.weight is missing (in Hugging ");
        CHECK_STATUS(DATA, model_files_open_tensor(
                               &m, t, "model.layers.1.self_attn.q_proj.weight.exp_avg", &r));
        CHECK_MESSAGE("exp_avg is missing (in Hugging Face's names), so this is not the whole");
    }
    model_files_close(&m);
    layout_release(&layout);
}

TEST(model_folder_without_optimizer_has_no_moments)
{
    struct model_files m;
    struct torch_state state;
    CHECK_STATUS(OK, model_files_open_moments_any(&m, "tests/checkpoint/data/tied",
                                                  &(struct model_shape){0}, &state));
    CHECK(model_files_are_empty(&m) && state.step == -1);
    model_files_close(&m);
}
