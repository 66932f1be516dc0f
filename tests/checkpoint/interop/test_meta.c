// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"
#include "checkpoint/interop/meta.h"
#include "checkpoint/rig.h"

#include <unistd.h>

#define LLAMA2 "tests/checkpoint/data/meta-llama2"
#define LLAMA3 "tests/checkpoint/data/meta-llama3"

static enum status convert(const char *from, const char *to, enum conversion_target target)
{
    struct converted done;
    struct conversion c = {.from = from, .to = to, .target = target, .keep_dtype = true};
    return convert_checkpoint(&c, &done);
}

static bool same_files(const char *a, const char *b)
{
    struct text x = {0}, y = {0};
    CHECK_STATUS(OK, file_read(a, 1 << 20, &x));
    CHECK_STATUS(OK, file_read(b, 1 << 20, &y));
    bool same = x.len == y.len && !memcmp(x.data, y.data, x.len);
    text_release(&x), text_release(&y);
    return same;
}

TEST(meta_detect_finds_pth_files_and_folders)
{
    CHECK(meta_detect(LLAMA2) && meta_detect(LLAMA2 "/consolidated.00.pth"));
    CHECK(!meta_detect("tests/checkpoint/data/tied") && !meta_detect("nothing.pth"));
    CHECK(!meta_detect(LLAMA2 "/params.json"));
    char *folder = meta_folder(LLAMA2 "/consolidated.00.pth"), *whole = meta_folder(LLAMA2);
    CHECK(!strncmp(folder, LLAMA2, strlen(LLAMA2)) && !strcmp(whole, LLAMA2));
    free(folder), free(whole);
}

TEST(brackets_in_the_name_of_a_folder_are_no_pattern)
{
    const char *folder = test_folder(), *other = test_path(folder, "m1");
    const char *bracketed = test_path(folder, "m[1]");
    struct tensor_slices slices;
    CHECK_STATUS(OK, file_make_dirs(other));
    CHECK_STATUS(OK, file_make_dirs(bracketed));
    CHECK_STATUS(OK, file_write(test_path(other, "consolidated.00.pth"), "x", 1));
    CHECK(!meta_detect(bracketed) && meta_detect(other));
    CHECK_STATUS(OK, convert(LLAMA3, test_path(folder, "m[2]"), CONVERT_META));
    CHECK(meta_detect(test_path(folder, "m[2]")));
    CHECK_STATUS(OK, meta_open(&slices, test_path(folder, "m[2]"), NULL));
    tensor_slices_release(&slices);
}

TEST(model_to_meta_and_back_is_bit_identical)
{
    for (int tied = 0; tied < 2; tied++) {
        struct saved s;
        const char *folder = test_folder(), *meta = test_path(folder, "meta");
        saved_open(&s, tied);
        const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
        CHECK_STATUS(OK, convert(step, meta, CONVERT_META));
        CHECK_STATUS(OK, convert(meta, test_path(folder, "run"), CONVERT_NATIVE));
        CHECK_STATUS(OK, convert(meta, test_path(folder, "hf"), CONVERT_HF));
        const char *back[] = {meta, test_path(folder, "hf"),
                              test_path(folder, "run/checkpoint/step-0"),
                              test_path(folder, "meta/consolidated.00.pth")};
        for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
            struct loaded_state l;
            CHECK_STATUS(OK, load_into(&l, &s, back[i]));
            CHECK(same_tensors(&s.layout, l.buffers[0], s.weights) && !l.found.has_moments);
            loaded_release(&l);
        }
        CHECK_STATUS(OK,
                     convert(test_path(folder, "hf"), test_path(folder, "again"), CONVERT_META));
        CHECK(same_files(test_path(folder, "meta/consolidated.00.pth"),
                         test_path(folder, "again/consolidated.00.pth")));
        saved_close(&s);
    }
}

/* Meta's code loads with strict=True. */
TEST(tied_model_has_both_names_in_metas_file)
{
    struct saved s;
    struct tensor_slices p;
    const struct tensor_name names[] = {{.id = PARAM_embed, .layer = -1},
                                        {.id = PARAM_head, .layer = -1}};
    const char *meta = test_path(test_folder(), "meta");
    saved_open(&s, true);
    const char *step = test_path(saved_folder(&s, STEPS(2)), "step-2");
    CHECK_STATUS(OK, convert(step, meta, CONVERT_META));
    CHECK_STATUS(OK, meta_open(&p, meta, &s.shape));
    const struct tensor_slot *t = layout_find(&s.layout, PARAM_embed, -1);
    for (int i = 0; i < 2; i++) {
        const struct sliced_tensor *has = tensor_slices_find(&p, &names[i]);
        CHECK(has && has->rows == t->rows && has->columns == t->columns);
        CHECK(!memcmp(has->all[0].data, s.weights + t->offset, t->elements * sizeof(float)));
    }
    tensor_slices_release(&p);
    saved_close(&s);
}

/* A copy of the fixture; the file `name` gets other bytes. */
static const char *with_file(const char *name, const void *bytes, size_t len)
{
    static const char *const names[] = {"consolidated.00.pth", "consolidated.01.pth",
                                        "params.json"};
    const char *folder = test_folder();
    struct text t = {0};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(OK, file_read(test_path(LLAMA2, names[i]), 1 << 20, &t));
        CHECK_STATUS(OK, file_write(test_path(folder, names[i]), t.data, t.len));
    }
    if (bytes) CHECK_STATUS(OK, file_write(test_path(folder, name), bytes, len));
    text_release(&t);
    return folder;
}

TEST(truncated_pth_file_is_rejected_by_name)
{
    struct text t = {0};
    struct model_shape shape;
    const char *folder = with_file("", NULL, 0);
    CHECK_STATUS(OK, checkpoint_read_shape(folder, &shape));
    CHECK(shape.V == 40 && shape.D == 16 && shape.F == 24 && shape.L == 2 && shape.tied);
    CHECK_STATUS(OK, file_read(LLAMA2 "/consolidated.01.pth", 1 << 20, &t));
    const char *cut = test_path(folder, "consolidated.01.pth");
    for (size_t len = t.len; len-- > 0;) {
        CHECK(truncate(cut, (off_t)len) == 0);
        CHECK_STATUS(DATA, checkpoint_read_shape(folder, &shape));
        CHECK_MESSAGE("consolidated.01.pth");
    }
    text_release(&t);
}

TEST(missing_model_parallel_shard_is_rejected)
{
    struct model_shape shape;
    CHECK_STATUS(OK, checkpoint_read_shape(LLAMA3, &shape));
    CHECK(shape.G == 2 && shape.scaling.factor == 8 && shape.max_context == 131072);
    const char *folder = test_folder();
    struct text t = {0};
    struct tensor_slices p;
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "consolidated.%02d.pth", i);
        CHECK_STATUS(OK, file_read(test_path(LLAMA3, name), 1 << 20, &t));
        CHECK_STATUS(OK, file_write(test_path(folder, name), t.data, t.len));
    }
    CHECK_STATUS(OK, file_read(LLAMA3 "/params.json", 1 << 20, &t));
    CHECK_STATUS(OK, file_write(test_path(folder, "params.json"), t.data, t.len));
    CHECK_STATUS(DATA, convert(folder, test_path(test_folder(), "to"), CONVERT_HF));
    CHECK_STATUS(OK, meta_open(&p, LLAMA3, &shape));
    CHECK(p.num_maps == 4 && p.head_dim == 4);
    tensor_slices_release(&p);
    text_release(&t);
}

TEST(pth_without_params_json_names_the_missing_file)
{
    const char *folder = with_file("", NULL, 0);
    struct model_shape shape;
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "params.json")));
    CHECK_STATUS(MISSING, checkpoint_read_shape(folder, &shape));
    CHECK_MESSAGE("neither config.json nor params.json");
}

TEST(pth_pickle_with_a_function_is_rejected_by_name)
{
    static const char evil[] = "\x80\2cos\nsystem\nX\4\0\0\0true\x85R.";
    struct zip_writer w = {0};
    struct text all = {0}, part = {0};
    struct model_shape shape;
    zip_writer_add(&w, "archive/data.pkl", sizeof evil - 1, 0, &part);
    text_add(&all, part.data, part.len), text_add(&all, evil, sizeof evil - 1);
    zip_writer_finish(&w, &part);
    text_add(&all, part.data, part.len);
    const char *folder = with_file("consolidated.01.pth", all.data, all.len);
    CHECK_STATUS(DATA, checkpoint_read_shape(folder, &shape));
    CHECK_MESSAGE("global os.system is not allowed");
    text_release(&all), text_release(&part);
    zip_writer_release(&w);
}

TEST(meta_file_truncated_while_it_is_read_fails_with_its_name)
{
    const char *path = test_path(test_folder(), "consolidated.00.pth");
    struct text bytes = {0};
    struct tensor_slices slices;
    float row[8];
    CHECK_STATUS(OK, file_read(LLAMA2 "/consolidated.00.pth", 1 << 24, &bytes));
    CHECK_STATUS(OK, file_write(path, bytes.data, bytes.len));
    CHECK_STATUS(OK, meta_open(&slices, path, NULL));
    const struct sliced_tensor *t = &slices.tensors[0];
    CHECK_STATUS(OK, tensor_slices_read(&slices, t, 0, 8, row));
    CHECK_STATUS(OK, tensor_slices_check(t));
    CHECK(!truncate(path, 0));
    CHECK_STATUS(OK, tensor_slices_read(&slices, t, 0, 8, row));
    CHECK_STATUS(DATA, tensor_slices_check(t));
    CHECK_MESSAGE("consolidated.00.pth: the file was truncated from ");
    tensor_slices_release(&slices);
    text_release(&bytes);
}
