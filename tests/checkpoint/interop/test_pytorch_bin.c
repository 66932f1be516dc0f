// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/pytorch_bin.h"

#include "base/file.h"
#include "checkpoint/convert.h"
#include "checkpoint/rig.h"
#include "formats/torch_writer.h"

#include <fcntl.h>
#include <unistd.h>

/* Saved by torch.save: see tests/oracle/pytorch_bin.py. */
#define FOLDER "tests/checkpoint/data/pytorch_bin"
#define FIRST  "pytorch_model-00001-of-00002.bin"
#define SECOND "pytorch_model-00002-of-00002.bin"
#define INDEX  "pytorch_model.bin.index.json"

/* A copy of it; the file `name`, if any, gets other bytes. */
static const char *with_file(const char *name, const char *bytes, size_t len)
{
    static const char *const names[] = {FIRST, SECOND, INDEX, "config.json"};
    const char *folder = test_folder();
    struct text t = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_STATUS(OK, file_read(test_path(FOLDER, names[i]), 1 << 20, &t));
        CHECK_STATUS(OK, file_write(test_path(folder, names[i]), t.data, t.len));
    }
    if (name) CHECK_STATUS(OK, file_write(test_path(folder, name), bytes, len));
    text_release(&t);
    return folder;
}

static enum status open_folder(const char *folder)
{
    const struct model_shape shape = {.H = 4, .G = 2, .K = 4, .F = 24};
    struct tensor_slices p;
    enum status st = pytorch_bin_open(&p, folder, &shape);
    if (!st) tensor_slices_release(&p);
    return st;
}

/* The oracle's values for a model of that shape. */
static void set_oracle_values(struct saved *s)
{
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

TEST(pytorch_bin_fixture_has_the_oracles_values)
{
    struct saved s;
    struct loaded_state l;
    saved_open(&s, false);
    set_oracle_values(&s);
    CHECK(pytorch_bin_detect(FOLDER) && !pytorch_bin_detect("tests/checkpoint/data/tied"));
    CHECK_STATUS(OK, load_into(&l, &s, FOLDER));
    CHECK(same_tensors(&s.layout, l.buffers[0], s.weights) && !l.found.has_moments);
    loaded_release(&l);
    const char *items[] = {"model.layers.1.*"};
    const struct option_list exclude = {.items = items, .count = 1};
    CHECK_STATUS(OK, load_into(&l, &s, FOLDER));
    json_free(l.found.state);
    for (size_t i = 0; i < s.layout.elements; i++) l.buffers[0][i] = -77;
    CHECK_STATUS(
        OK, checkpoint_load(FOLDER, &l.state, &(struct load_rules){.exclude = &exclude}, &l.found));
    for (int i = 0; i < s.layout.num_tensors; i++) {
        const struct tensor_slot *t = &s.layout.tensors[i];
        float first = l.buffers[0][t->offset];
        CHECK(t->layer == 1 ? first < -76 : first >= -2 && first <= 2);
    }
    loaded_release(&l);
    const char *to = test_path(test_folder(), "hf");
    struct conversion c = {.from = FOLDER, .to = to, .keep_dtype = true};
    struct converted done;
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(done.dtype == SAFETENSORS_BF16 && done.num_tensors == s.layout.num_tensors);
    CHECK_STATUS(OK, load_into(&l, &s, to));
    CHECK(same_tensors(&s.layout, l.buffers[0], s.weights));
    loaded_release(&l);
    saved_close(&s);
}

TEST(single_pytorch_model_bin_loads_and_safetensors_take_precedence)
{
    for (int kind = 0; kind < 3; kind++) { /* untied, tied, OLMo 2 */
        struct saved s;
        struct torch_tensor tensors[32];
        struct torch_writer w;
        struct loaded_state l;
        struct converted done;
        uint64_t size;
        saved_open(&s, kind == 1);
        if (kind == 2) {
            struct model_shape shape = s.shape;
            shape.qk_norm = shape.post_norm = true;
            saved_close(&s);
            saved_open_shape(&s, &shape);
        }
        const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
        const char *folder = test_path(test_folder(), "hf");
        struct conversion c = {.from = step, .to = folder, .keep_dtype = true};
        CHECK_STATUS(OK, convert_checkpoint(&c, &done));
        for (int i = 0; i < s.layout.num_tensors; i++) {
            const struct tensor_slot *t = &s.layout.tensors[i];
            char *name = heap(96);
            layout_tensor_name(t, true, name);
            tensors[i] = (struct torch_tensor){.name = name,
                                               .dtype = SAFETENSORS_F32,
                                               .num_dims = t->columns > 1 ? 2 : 1,
                                               .shape = {t->rows, t->columns}};
        }
        const char *path = test_path(folder, "pytorch_model.bin");
        int fd = open(path, O_CREAT | O_WRONLY, 0666);
        CHECK_STATUS(OK, torch_writer_open(&w, fd, path, 0, tensors, (size_t)s.layout.num_tensors));
        for (int i = 0; i < s.layout.num_tensors; i++) {
            const struct tensor_slot *t = &s.layout.tensors[i];
            CHECK_STATUS(
                OK, torch_writer_put(&w, s.weights + t->offset, t->elements * sizeof *s.weights));
            free(tensors[i].name);
        }
        CHECK_STATUS(OK, torch_writer_close(&w, &size));
        torch_writer_release(&w);
        close(fd);
        CHECK_STATUS(OK, file_write(test_path(folder, "model.safetensors"), "", 0));
        CHECK_STATUS(DATA, try_load(&s, folder));
        CHECK_MESSAGE("model.safetensors");
        CHECK_STATUS(OK, file_remove_tree(test_path(folder, "model.safetensors")));
        CHECK_STATUS(OK, load_into(&l, &s, folder));
        CHECK(same_tensors(&s.layout, l.buffers[0], s.weights));
        loaded_release(&l);
        saved_close(&s);
    }
}

TEST(truncated_pytorch_bin_is_rejected_by_name)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(FOLDER "/" SECOND, 1 << 20, &t));
    const char *folder = with_file(NULL, NULL, 0), *path = test_path(folder, SECOND);
    CHECK_STATUS(OK, open_folder(folder));
    for (size_t len = t.len; len-- > 0;) {
        CHECK(truncate(path, (off_t)len) == 0);
        CHECK_STATUS(DATA, open_folder(folder));
        CHECK_MESSAGE(SECOND);
    }
    text_release(&t);
}

TEST(files_from_before_torch_1_6_are_reported_as_unsupported)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(FOLDER "/legacy.bin", 1 << 20, &t));
    CHECK_STATUS(UNSUPPORTED, open_folder(with_file(SECOND, t.data, t.len)));
    CHECK_MESSAGE("1.6");
    text_release(&t);
}

TEST(invalid_pytorch_bin_index_is_rejected)
{
    static const struct {
        const char *index, *message;
    } cases[] = {
        {"", "index.json"},
        {"[]", "weight_map is missing"},
        {"{\"weight_map\": {\"a\": 1}}", "a: expected the name of a file"},
        {"{\"weight_map\": {\"a\": \"../" FIRST "\"}}", "weight_map names"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "weight_map names"},
        {"{\"weight_map\": {\"a\": \"\"}}", "weight_map names"},
        {"{\"weight_map\": {\"lm_head.weight\": \"" FIRST "\"}}",
         "the tensor lm_head.weight, which is missing"},
        {"{\"weight_map\": {\"a\": \"config.json\"}}", "config.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *index = cases[i].index;
        CHECK_STATUS(DATA, open_folder(with_file(INDEX, index, strlen(index))));
        CHECK_MESSAGE(cases[i].message);
    }
    static const char missing[] = "{\"weight_map\": {\"a\": \"none.bin\"}}";
    CHECK_STATUS(MISSING, open_folder(with_file(INDEX, missing, sizeof missing - 1)));
    CHECK_MESSAGE("none.bin");
}

TEST(duplicate_and_unknown_tensors_are_rejected)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(FOLDER "/" FIRST, 1 << 20, &t));
    CHECK_STATUS(DATA, open_folder(with_file(SECOND, t.data, t.len)));
    CHECK_MESSAGE("duplicate tensor model.embed_tokens.weight");
    /* Names that no Llama has, patched into the pickle. */
    static const char *const others[] = {"model.layers.01", "model.layers.x.",
                                         "model.embed_tokenz"};
    static const char *const names[] = {"model.layers.0.", "model.layers.0.", "model.embed_tokens"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct text changed = {0};
        text_add(&changed, t.data, t.len);
        for (size_t at = 0; at + 40 < t.len; at++)
            if (!memcmp(t.data + at, names[i], strlen(names[i])))
                memcpy(changed.data + at, others[i], strlen(others[i]));
        CHECK(open_folder(with_file(FIRST, changed.data, changed.len)) == STATUS_DATA);
        CHECK_MESSAGE(FIRST);
        text_release(&changed);
    }
    text_release(&t);
}

TEST(fused_biases_are_split_as_fused_matrices_are)
{
    enum { Q = 16, P = 8, ALL = Q + 2 * P };
    static const char *const names[] = {"q", "k", "v"};
    static const size_t begin[] = {0, Q, Q + P}, count[] = {Q, P, P};
    const struct model_shape shape = {.H = 4, .G = 2, .K = 4, .F = 24};
    const char *folder = test_folder(), *path = test_path(folder, "pytorch_model.bin");
    char fused[] = "model.layers.0.self_attn.qkv_proj.bias";
    struct torch_tensor t = {
        .name = fused, .dtype = SAFETENSORS_F32, .num_dims = 1, .shape = {ALL}};
    struct torch_writer w;
    struct tensor_slices slices;
    float values[ALL], got[Q];
    uint64_t size;
    int fd = open(path, O_CREAT | O_WRONLY, 0666);
    for (int i = 0; i < ALL; i++) values[i] = (float)i;
    CHECK_STATUS(OK, torch_writer_open(&w, fd, path, 0, &t, 1));
    CHECK_STATUS(OK, torch_writer_put(&w, values, sizeof values));
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    close(fd);
    CHECK_STATUS(OK, pytorch_bin_open(&slices, folder, &shape));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char part[64];
        struct tensor_name name;
        snprintf(part, sizeof part, "model.layers.0.self_attn.%s_proj.bias", names[i]);
        CHECK(tensor_name_parse_hf(part, &name));
        const struct sliced_tensor *own = tensor_slices_find(&slices, &name);
        CHECK(own && own->rows == (int64_t)count[i]);
        CHECK_STATUS(OK, tensor_slices_read(&slices, own, 0, count[i], got));
        CHECK(!memcmp(got, values + begin[i], count[i] * sizeof *got));
    }
    tensor_slices_release(&slices);
}
