// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "formats/pickle_write.h"
#include "formats/torch.h"
#include "tensor/dtype.h"
#include "test.h"

/* Written by PyTorch itself (tests/oracle/torch_file.py). */
static struct text kinds(void)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read("tests/formats/data/kinds.pt", 1 << 20, &t));
    return t;
}

static enum status open_all(const void *bytes, size_t len, struct torch_archive *a,
                            struct torch_tensors *t)
{
    *t = (struct torch_tensors){0};
    enum status st = torch_archive_open(a, bytes, len, "x.pt");
    if (!st) st = torch_archive_tensors(a, t);
    return st;
}

static const struct torch_tensor *find(const struct torch_tensors *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->all[i].name, name)) return &t->all[i];
    return NULL;
}

/* The element at row r and column c of a tensor with at most two dimensions. */
static double at(const struct torch_tensor *t, int64_t r, int64_t c)
{
    int64_t offset =
        (t->num_dims > 0 ? r * t->strides[0] : 0) + (t->num_dims > 1 ? c * t->strides[1] : 0);
    const unsigned char *from = t->data + offset * (int64_t)safetensors_dtype_bytes(t->dtype);
    uint16_t half;
    float single;
    double real;
    int64_t whole;
    memcpy(&half, from, 2);
    switch (safetensors_dtype_bytes(t->dtype)) {
    case 2: return t->dtype == SAFETENSORS_BF16 ? (double)bf16_to_f32(half) : half;
    case 4: return memcpy(&single, from, 4), (double)single;
    }
    memcpy(&real, from, 8), memcpy(&whole, from, 8);
    return t->dtype == SAFETENSORS_I64 ? (double)whole : real;
}

TEST(every_kind_of_tensor_that_torch_saves_is_read)
{
    static const struct {
        const char *name;
        enum safetensors_dtype dtype;
        int num_dims;
        int64_t rows, columns;
        double first;
    } want[] = {
        {"float10", SAFETENSORS_F32, 2, 4, 3, 10},
        {"view13", SAFETENSORS_F32, 2, 2, 3, 13},
        {"turned20", SAFETENSORS_F32, 2, 2, 3, 20},
        {"nested.bfloat30", SAFETENSORS_BF16, 2, 2, 2, 30},
        {"double50", SAFETENSORS_F64, 1, 2, 1, 50},
        {"scalar60", SAFETENSORS_F32, 0, 1, 1, 60},
        {"long80", SAFETENSORS_I64, 1, 2, 1, 80},
        {"module.weight5", SAFETENSORS_F32, 1, 3, 1, 5},
        {"parameter90", SAFETENSORS_F32, 1, 2, 1, 90},
    };
    struct text t = kinds();
    struct torch_archive a;
    struct torch_tensors all;
    CHECK_STATUS(OK, open_all(t.data, t.len, &a, &all));
    CHECK(all.count == sizeof want / sizeof *want + 2);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct torch_tensor *have = find(&all, want[i].name);
        CHECK(have && have->dtype == want[i].dtype && have->num_dims == want[i].num_dims);
        for (int64_t r = 0; r < want[i].rows; r++)
            for (int64_t c = 0; c < want[i].columns; c++)
                CHECK(at(have, r, c) == want[i].first + (double)(r * want[i].columns + c));
    }
    CHECK(find(&all, "nested.7.half40")->dtype == SAFETENSORS_F16);
    CHECK(find(&all, "none70")->shape[0] == 0 && find(&all, "none70")->shape[1] == 3);
    CHECK(find(&all, "view13")->data == find(&all, "float10")->data + 12);
    CHECK(pickle_get(a.pickle.root, "step")->integer == 300);
    torch_tensors_release(&all);
    torch_archive_close(&a);
    text_release(&t);
}

TEST(truncated_torch_files_are_rejected)
{
    struct text t = kinds();
    for (size_t len = t.len; len-- > 0;) {
        struct torch_archive a;
        struct torch_tensors all;
        CHECK_STATUS(DATA, open_all(t.data, len, &a, &all));
        CHECK_MESSAGE("x.pt");
        torch_archive_close(&a);
    }
    text_release(&t);
}

TEST(tensors_of_corrupt_torch_files_stay_within_the_file)
{
    struct text t = kinds();
    size_t read = 0;
    for (size_t i = 0; i < t.len; i++) {
        struct torch_archive a;
        struct torch_tensors all;
        t.data[i] = (char)(t.data[i] ^ 0x81);
        if (!open_all(t.data, t.len, &a, &all)) read++;
        for (size_t k = 0; k < all.count; k++) {
            const struct torch_tensor *one = &all.all[k];
            bool empty = false;
            for (int d = 0; d < one->num_dims; d++) empty |= one->shape[d] == 0;
            if (empty || one->num_dims > 2) continue;
            int64_t last = 0;
            for (int d = 0; d < one->num_dims; d++) last += (one->shape[d] - 1) * one->strides[d];
            const unsigned char *end =
                one->data + (last + 1) * (int64_t)safetensors_dtype_bytes(one->dtype);
            CHECK(one->data >= (unsigned char *)t.data && end <= (unsigned char *)t.data + t.len);
        }
        torch_tensors_release(&all);
        torch_archive_close(&a);
        t.data[i] = (char)(t.data[i] ^ 0x81);
    }
    CHECK(read > 100); /* changes of names, elements and times are not errors */
    text_release(&t);
}

/* An archive with this pickle and a storage data/0 of 8 bytes. */
static struct text archive(const void *pickle, size_t len, const char *byteorder)
{
    struct zip_writer w = {0};
    struct text all = {0}, head = {0};
    const struct {
        const char *name;
        const void *bytes;
        size_t len;
    } files[] = {{"archive/data.pkl", pickle, len},
                 {"archive/byteorder", byteorder, strlen(byteorder)},
                 {"archive/data/0", "\0\0\x80\x3f\0\0\0\x40", 8}};
    for (int i = 0; i < 3; i++) {
        zip_writer_add(&w, files[i].name, files[i].len, zip_crc(0, files[i].bytes, files[i].len),
                       &head);
        text_add(&all, head.data, head.len);
        text_add(&all, files[i].bytes, files[i].len);
    }
    zip_writer_finish(&w, &head);
    text_add(&all, head.data, head.len);
    text_release(&head);
    zip_writer_release(&w);
    return all;
}

TEST(a_written_pickle_of_tensors_reads_back)
{
    char root[] = "", named[] = "a.b";
    for (int alone = 0; alone < 2; alone++) {
        struct torch_tensor out = {alone ? root : named, SAFETENSORS_F32, 1, {2}, {0}, NULL, 0};
        struct text pickle = {0};
        struct torch_archive a;
        struct torch_tensors all;
        torch_write_pickle(&out, 1, &pickle);
        struct text t = archive(pickle.data, pickle.len, "little");
        CHECK_STATUS(OK, open_all(t.data, t.len, &a, &all));
        CHECK(all.count == 1 && !strcmp(all.all->name, out.name));
        CHECK(at(all.all, 0, 0) == 1 && at(all.all, 1, 0) == 2);
        torch_tensors_release(&all);
        torch_archive_close(&a);
        text_release(&t), text_release(&pickle);
    }
}

TEST(a_tensor_that_exceeds_its_storage_is_rejected)
{
    char name[] = "a";
    struct torch_tensor out = {name, SAFETENSORS_F32, 1, {3}, {0}, NULL, 0};
    struct text pickle = {0};
    struct torch_archive a;
    struct torch_tensors all;
    torch_write_pickle(&out, 1, &pickle);
    struct text t = archive(pickle.data, pickle.len, "little");
    CHECK_STATUS(DATA, open_all(t.data, t.len, &a, &all));
    CHECK_MESSAGE("tensor a exceeds the 8 bytes of data/0");
    torch_archive_close(&a);
    text_release(&t), text_release(&pickle);
}

TEST(big_endian_and_legacy_torch_files_are_unsupported)
{
    struct torch_archive a;
    struct text t = archive("\x80\2}.", 4, "big");
    CHECK_STATUS(UNSUPPORTED, torch_archive_open(&a, (unsigned char *)t.data, t.len, "x.pt"));
    CHECK_MESSAGE("big-endian");
    torch_archive_close(&a);
    text_release(&t);
    static const unsigned char old[] = "\x80\2\x8a\x0al\xfc\x9c"
                                       "F\xf9 j\xa8P\x19.\x80\2M\xe9\3.";
    CHECK_STATUS(UNSUPPORTED, torch_archive_open(&a, old, sizeof old - 1, "x.pt"));
    CHECK_MESSAGE("PyTorch before 1.6");
    torch_archive_close(&a);
}

/* {"a": {"b": TensorReference}} with this state, as torch_xla.utils.serialization saves it. */
static struct text reference(const char *state, size_t len)
{
    struct text pickle = {0};
    text_add(&pickle, "\x80\2}X\1\0\0\0a}X\1\0\0\0b", 16);
    text_adds(&pickle, "ctorch_xla.utils.serialization\nTensorReference\n)\x81");
    text_add(&pickle, state, len);
    text_adds(&pickle, "bss.");
    struct text t = archive(pickle.data, pickle.len, "little");
    text_release(&pickle);
    return t;
}

TEST(a_tensor_reference_has_the_number_of_its_file)
{
    struct torch_archive a;
    struct torch_tensors all;
    struct text t = reference("}X\3\0\0\0tidM\1\2s", 13);
    CHECK_STATUS(OK, open_all(t.data, t.len, &a, &all)); /* it is not a tensor here */
    CHECK(all.count == 0);
    torch_tensors_release(&all);
    CHECK_STATUS(OK, torch_archive_references(&a, &all));
    CHECK(all.count == 1 && !strcmp(all.all->name, "a.b") && !all.all->data);
    CHECK(all.all->reference == 513);
    torch_tensors_release(&all);
    torch_archive_close(&a);
    text_release(&t);
    static const struct {
        const char *state;
        size_t len;
    } others[] = {{"}", 1},
                  {"N", 1},
                  {"}X\3\0\0\0tidX\1\0\0\0/s", 16},
                  {"}X\3\0\0\0tidJ\xff\xff\xff\xffs", 15},
                  {"}X\3\0\0\0tidNs", 11}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        t = reference(others[i].state, others[i].len);
        CHECK_STATUS(OK, torch_archive_open(&a, (unsigned char *)t.data, t.len, "x.pt"));
        CHECK_STATUS(DATA, torch_archive_references(&a, &all));
        CHECK_MESSAGE("a.b: invalid TensorReference");
        torch_archive_close(&a);
        text_release(&t);
    }
}

/* As Megatron-LM's optimizer of 2023. */
TEST(a_dict_that_is_keyed_by_a_class_is_read)
{
    char no_name[] = "";
    const struct torch_tensor tensor = {
        .name = no_name, .dtype = SAFETENSORS_F32, .num_dims = 1, .shape = {2}};
    struct text pickle = {0}, inner = {0};
    struct torch_archive a;
    struct torch_tensors all;
    torch_write_pickle(&tensor, 1, &inner);
    pickle_write_proto(&pickle), pickle_write_empty_dict(&pickle), pickle_write_mark(&pickle);
    pickle_write_int(&pickle, 0);
    pickle_write_empty_dict(&pickle), pickle_write_mark(&pickle);
    pickle_write_global(&pickle, "torch", "float32");
    text_add(&pickle, inner.data + 2, inner.len - 3); /* without PROTO and STOP */
    pickle_write_setitems(&pickle), pickle_write_setitems(&pickle), pickle_write_stop(&pickle);
    struct text t = archive(pickle.data, pickle.len, "little");
    CHECK_STATUS(OK, open_all(t.data, t.len, &a, &all));
    CHECK(all.count == 1 && !strcmp(all.all->name, "0.()"));
    CHECK_NEAR(at(all.all, 1, 0), 2, 0);
    torch_tensors_release(&all);
    torch_archive_close(&a);
    text_release(&pickle), text_release(&inner), text_release(&t);
}

/* Dicts that refer to the same dict many times, nested: exponentially many paths in a few bytes. */
TEST(a_pickle_with_exponentially_many_paths_is_rejected)
{
    struct text pickle = {0};
    struct torch_archive a;
    struct torch_tensors all;
    text_add(&pickle, "\x80\2}q\0", 5);
    for (int i = 0; i < 7; i++) {
        text_adds(&pickle, "}(");
        for (int key = 0; key < 200; key++) {
            text_add(&pickle, "K", 1), text_add(&pickle, &(char){(char)key}, 1);
            text_add(&pickle, (char[]){'h', (char)i}, 2);
        }
        text_add(&pickle, (char[]){'u', 'q', (char)(i + 1)}, 3);
    }
    for (int i = 0; i < 7; i++) text_adds(&pickle, "\x86");
    text_adds(&pickle, "0h");
    text_add(&pickle, "\7.", 2);
    struct text t = archive(pickle.data, pickle.len, "little");
    CHECK_STATUS(DATA, open_all(t.data, t.len, &a, &all));
    CHECK_MESSAGE("repeats shared dicts too often");
    torch_archive_close(&a);
    text_release(&t), text_release(&pickle);
}
