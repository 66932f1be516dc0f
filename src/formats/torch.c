// SPDX-License-Identifier: Apache-2.0
#include "formats/torch.h"

#include "formats/pickle_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PICKLE = 256 << 20, MAX_DEPTH = 8 };

static const struct {
    enum pickle_class storage, dtype;
    enum safetensors_dtype is;
} dtypes[] = {
    {PICKLE_DOUBLE_STORAGE, PICKLE_DOUBLE, SAFETENSORS_F64},
    {PICKLE_FLOAT_STORAGE, PICKLE_FLOAT, SAFETENSORS_F32},
    {PICKLE_HALF_STORAGE, PICKLE_HALF, SAFETENSORS_F16},
    {PICKLE_BFLOAT16_STORAGE, PICKLE_BFLOAT16, SAFETENSORS_BF16},
    {PICKLE_LONG_STORAGE, PICKLE_LONG, SAFETENSORS_I64},
    {PICKLE_INT_STORAGE, PICKLE_INT, SAFETENSORS_I32},
    {PICKLE_SHORT_STORAGE, PICKLE_SHORT, SAFETENSORS_I16},
    {PICKLE_CHAR_STORAGE, PICKLE_CHAR, SAFETENSORS_I8},
    {PICKLE_BYTE_STORAGE, PICKLE_BYTE, SAFETENSORS_U8},
    {PICKLE_BOOL_STORAGE, PICKLE_BOOL, SAFETENSORS_BOOL},
    {PICKLE_COMPLEX_STORAGE, PICKLE_COMPLEX, SAFETENSORS_C64},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static bool find_dtype(const struct pickle_value *v, enum safetensors_dtype *dtype)
{
    for (int i = 0; i < DTYPES; i++) {
        bool same = v && v->kind == PICKLE_IS_CLASS &&
                    (v->class == dtypes[i].storage || v->class == dtypes[i].dtype);
        if (!same) continue;
        *dtype = dtypes[i].is;
        return true;
    }
    return false;
}

/* Finds an entry by its name within the archive's folder. */
static const struct zip_entry *find_entry(const struct torch_archive *a, const char *name,
                                          size_t len)
{
    char path[1024];
    if (a->folder_len + len > sizeof path) return NULL;
    memcpy(path, a->folder, a->folder_len);
    memcpy(path + a->folder_len, name, len);
    return zip_find(&a->zip, path, a->folder_len + len);
}

static enum status find_folder(struct torch_archive *a)
{
    static const char root[] = "/data.pkl";
    size_t found = 0, len = sizeof root - 2; /* the folder includes its slash */
    for (size_t i = 0; i < a->zip.count; i++) {
        const struct zip_entry *e = &a->zip.entries[i];
        if (e->name_len <= len || memcmp(e->name + e->name_len - len - 1, root, len + 1)) continue;
        a->folder = e->name, a->folder_len = e->name_len - len;
        found++;
    }
    if (found != 1) FAIL(DATA, "%s: expected 1 data.pkl in the archive, got %zu", a->name, found);
    return STATUS_OK;
}

static enum status open_archive(struct torch_archive *a, const unsigned char *bytes, uint64_t size,
                                bool any_class)
{
    static const unsigned char old[] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46};
    const char *name = a->name;
    size_t used;
    if (size >= sizeof old && !memcmp(bytes, old, sizeof old))
        FAIL(UNSUPPORTED,
             "%s: the legacy format of PyTorch before 1.6 is not supported: save the file again",
             name);
    TRY(zip_parse(&a->zip, bytes, size, name));
    TRY(find_folder(a));
    const struct zip_entry *order = find_entry(a, "byteorder", 9),
                           *root = find_entry(a, "data.pkl", 8);
    if (order && order->size >= 3 && !memcmp(order->data, "big", 3))
        FAIL(UNSUPPORTED, "%s: big-endian data is not supported", name);
    if (root->size > MAX_PICKLE)
        FAIL(DATA, "%s: pickle of %llu bytes exceeds the limit of %d", name,
             (unsigned long long)root->size, MAX_PICKLE);
    if (!zip_entry_crc_ok(root)) FAIL(DATA, "%s: data.pkl: checksum mismatch", name);
    TRY(any_class ? pickle_parse_any(&a->pickle, root->data, root->size, name, &used)
                  : pickle_parse(&a->pickle, root->data, root->size, name, &used));
    return STATUS_OK;
}

enum status torch_archive_open(struct torch_archive *a, const unsigned char *bytes, uint64_t size,
                               const char *name)
{
    *a = (struct torch_archive){.name = name};
    TRY(open_archive(a, bytes, size, false));
    return STATUS_OK;
}

enum status torch_archive_open_any(struct torch_archive *a, const unsigned char *bytes,
                                   uint64_t size, const char *name)
{
    *a = (struct torch_archive){.name = name};
    TRY(open_archive(a, bytes, size, true));
    return STATUS_OK;
}

void torch_archive_close(struct torch_archive *a)
{
    zip_release(&a->zip);
    pickle_release(&a->pickle);
    *a = (struct torch_archive){0};
}

/* The offset of the last element from the first, in elements, and whether the tensor is empty. */
static enum status last_element(const struct torch_archive *a, const struct torch_tensor *t,
                                uint64_t *last, bool *empty)
{
    *last = 0, *empty = false;
    for (int d = 0; d < t->num_dims; d++) {
        uint64_t step;
        *empty |= t->shape[d] == 0;
        if (t->shape[d] < 2) continue;
        if (__builtin_mul_overflow((uint64_t)t->shape[d] - 1, (uint64_t)t->strides[d], &step) ||
            __builtin_add_overflow(*last, step, last))
            FAIL(DATA, "%s: tensor %s: invalid shape", a->name, t->name);
    }
    return STATUS_OK;
}

/* Sets t->data to element `first` of the storage, and checks that the storage holds all elements of
 * t. `storage`: ("storage", type, key, location, size). */
static enum status find_data(const struct torch_archive *a, const struct pickle_value *storage,
                             const struct pickle_value *first, struct torch_tensor *t)
{
    const struct pickle_value *key = pickle_item(storage, 2);
    uint64_t last, bytes;
    bool empty;
    char path[300];
    if (!pickle_is_string(pickle_item(storage, 0), "storage") || !key ||
        key->kind != PICKLE_IS_STRING || key->len > 256 || !first || first->kind != PICKLE_IS_INT ||
        first->integer < 0)
        FAIL(DATA, "%s: tensor %s: invalid storage", a->name, t->name);
    int len = snprintf(path, sizeof path, "data/%.*s", (int)key->len, key->text);
    const struct zip_entry *e = find_entry(a, path, (size_t)len);
    if (!e) FAIL(DATA, "%s: tensor %s: %s is missing", a->name, t->name, path);
    TRY(last_element(a, t, &last, &empty));
    t->data = e->data;
    if (empty) return STATUS_OK;
    uint64_t each = safetensors_dtype_bytes(t->dtype), begin = (uint64_t)first->integer;
    if (__builtin_add_overflow(last, begin, &last) || __builtin_add_overflow(last, 1, &last) ||
        __builtin_mul_overflow(last, each, &bytes) || bytes > e->size)
        FAIL(DATA, "%s: tensor %s exceeds the %llu bytes of %s", a->name, t->name,
             (unsigned long long)e->size, path);
    t->data += begin * each;
    return STATUS_OK;
}

/* The call that makes a tensor. */
struct tensor_call {
    enum pickle_class class;
    const struct pickle_value *arguments;
};

/* That of a tensor with Python attributes is in _rebuild_from_type_v2(function, type, arguments,
 * attributes). */
static struct tensor_call tensor_call(const struct pickle_value *v)
{
    const struct pickle_value *arguments = v->items[0], *function = pickle_item(arguments, 0);
    if (v->class != PICKLE_FROM_TYPE) return (struct tensor_call){v->class, arguments};
    bool is_class = function && function->kind == PICKLE_IS_CLASS;
    return (struct tensor_call){is_class ? function->class : PICKLE_UNKNOWN,
                                pickle_item(arguments, 2)};
}

static bool is_tensor(const struct pickle_value *v)
{
    if (v->kind != PICKLE_IS_OBJECT) return false;
    enum pickle_class class = tensor_call(v).class;
    return class == PICKLE_TENSOR_V2 || class == PICKLE_TENSOR_V3 || class == PICKLE_TENSOR ||
           v->class == PICKLE_PARAMETER;
}

static enum status read_tensor(const struct torch_archive *a, const struct pickle_value *v,
                               struct torch_tensor *t)
{
    for (int i = 0;
         i < MAX_DEPTH && v && v->kind == PICKLE_IS_OBJECT && v->class == PICKLE_PARAMETER; i++)
        v = pickle_argument(v, PICKLE_PARAMETER, 0);
    if (!v || !is_tensor(v) || v->class == PICKLE_PARAMETER)
        FAIL(DATA, "%s: parameter %s does not wrap a tensor", a->name, t->name);
    const struct tensor_call c = tensor_call(v);
    const struct pickle_value *persistent = pickle_item(c.arguments, 0);
    const struct pickle_value *dtype = pickle_item(c.arguments, 6), *storage = NULL;
    if (persistent && persistent->kind == PICKLE_IS_PERSISTENT) storage = persistent->items[0];
    if (c.class != PICKLE_TENSOR_V3) dtype = pickle_item(storage, 1);
    if (!find_dtype(dtype, &t->dtype))
        FAIL(UNSUPPORTED, "%s: tensor %s: unsupported dtype", a->name, t->name);
    t->num_dims = pickle_int_tuple(pickle_item(c.arguments, 2), TORCH_DIMS, t->shape);
    if (t->num_dims < 0 ||
        pickle_int_tuple(pickle_item(c.arguments, 3), TORCH_DIMS, t->strides) != t->num_dims)
        FAIL(DATA, "%s: tensor %s: invalid shape", a->name, t->name);
    TRY(find_data(a, storage, pickle_item(c.arguments, 1), t));
    return STATUS_OK;
}

/* A walk over nested dicts and, if `lists`, lists.  `steps` bounds it, because shared ones can be
 * visited many times. */
struct tensor_walk {
    const struct torch_archive *archive;
    struct torch_tensors *out;
    bool lists;
    bool references; /* list TensorReferences, too */
    size_t capacity, steps;
};

static bool is_listed(const struct tensor_walk *w, const struct pickle_value *v)
{
    bool refers = v->kind == PICKLE_IS_OBJECT && v->class == PICKLE_TENSOR_REFERENCE;
    return is_tensor(v) || (refers && w->references);
}

static bool is_nested(const struct tensor_walk *w, const struct pickle_value *v)
{
    return v->kind == PICKLE_IS_DICT || (v->kind == PICKLE_IS_LIST && w->lists);
}

static enum status read_reference(const struct torch_archive *a, const struct pickle_value *v,
                                  struct torch_tensor *t)
{
    const struct pickle_value *tid = pickle_field(v, PICKLE_TENSOR_REFERENCE, "tid");
    if (!tid || tid->kind != PICKLE_IS_INT || tid->integer < 0)
        FAIL(DATA, "%s: tensor %s: invalid TensorReference", a->name, t->name);
    t->reference = tid->integer;
    return STATUS_OK;
}

static enum status walk_value(struct tensor_walk *w, const struct pickle_value *v, const char *name,
                              int depth);

static enum status walk_dict(struct tensor_walk *w, const struct pickle_value *v, const char *name,
                             int depth)
{
    const char *dot = name[0] ? "." : "";
    for (size_t i = 0; i < v->count; i += 2) {
        const struct pickle_value *key = v->items[i], *item = v->items[i + 1];
        char path[TORCH_NAME];
        int len;
        if (w->steps++ > w->archive->pickle.num_values)
            FAIL(DATA, "%s: the pickle repeats shared dicts too often", w->archive->name);
        if (!is_nested(w, item) && !is_listed(w, item)) continue;
        if (key->kind == PICKLE_IS_INT)
            len = snprintf(path, sizeof path, "%s%s%lld", name, dot, (long long)key->integer);
        else if (key->kind == PICKLE_IS_STRING && key->len < sizeof path)
            len = snprintf(path, sizeof path, "%s%s%.*s", name, dot, (int)key->len, key->text);
        else if (key->kind == PICKLE_IS_TUPLE || key->kind == PICKLE_IS_CLASS)
            len = snprintf(path, sizeof path, "%s%s()", name, dot);
        else
            len = sizeof path;
        if (len < 0 || (size_t)len >= sizeof path)
            FAIL(DATA,
                 "%s: invalid key in dict \"%.100s\": expected a string, an integer, a tuple or a "
                 "class",
                 w->archive->name, name);
        TRY(walk_value(w, item, path, depth + 1));
    }
    return STATUS_OK;
}

static enum status walk_list(struct tensor_walk *w, const struct pickle_value *v, const char *name,
                             int depth)
{
    for (size_t i = 0; i < v->count; i++) {
        char path[TORCH_NAME];
        if (w->steps++ > w->archive->pickle.num_values)
            FAIL(DATA, "%s: the pickle repeats shared lists too often", w->archive->name);
        if (!is_nested(w, v->items[i]) && !is_listed(w, v->items[i])) continue;
        int len = snprintf(path, sizeof path, "%s.%zu", name, i);
        if (len < 0 || (size_t)len >= sizeof path)
            FAIL(DATA, "%s: the keys of \"%.100s\" are too long", w->archive->name, name);
        TRY(walk_value(w, v->items[i], path, depth + 1));
    }
    return STATUS_OK;
}

static enum status walk_value(struct tensor_walk *w, const struct pickle_value *v, const char *name,
                              int depth)
{
    if (is_nested(w, v) && depth < MAX_DEPTH) {
        TRY(v->kind == PICKLE_IS_DICT ? walk_dict(w, v, name, depth)
                                      : walk_list(w, v, name, depth));
        return STATUS_OK;
    }
    if (is_nested(w, v))
        FAIL(DATA, "%s: dict \"%.100s\" is nested too deeply", w->archive->name, name);
    if (!is_listed(w, v)) return STATUS_OK;
    struct torch_tensors *t = w->out;
    if (t->count == w->capacity) {
        w->capacity = w->capacity ? 2 * w->capacity : 64;
        t->all = heap_grow(t->all, w->capacity, sizeof *t->all);
    }
    t->all[t->count] = (struct torch_tensor){.name = heap_strdup(name)};
    t->count++;
    struct torch_tensor *tensor = &t->all[t->count - 1];
    TRY(is_tensor(v) ? read_tensor(w->archive, v, tensor) : read_reference(w->archive, v, tensor));
    return STATUS_OK;
}

static enum status run_walk(struct tensor_walk w, const struct pickle_value *from)
{
    *w.out = (struct torch_tensors){0};
    enum status st = walk_value(&w, from, "", 0);
    if (st) torch_tensors_release(w.out);
    return st;
}

enum status torch_archive_tensors(const struct torch_archive *a, struct torch_tensors *t)
{
    TRY(run_walk((struct tensor_walk){.archive = a, .out = t}, a->pickle.root));
    return STATUS_OK;
}

enum status torch_archive_tensors_in(const struct torch_archive *a, const struct pickle_value *v,
                                     struct torch_tensors *t)
{
    TRY(run_walk((struct tensor_walk){.archive = a, .out = t, .lists = true}, v));
    return STATUS_OK;
}

enum status torch_archive_references(const struct torch_archive *a, struct torch_tensors *t)
{
    TRY(run_walk((struct tensor_walk){.archive = a, .out = t, .references = true}, a->pickle.root));
    return STATUS_OK;
}

void torch_tensors_release(struct torch_tensors *t)
{
    for (size_t i = 0; i < t->count; i++) free(t->all[i].name);
    free(t->all);
    *t = (struct torch_tensors){0};
}

static int dtype_row(enum safetensors_dtype dtype)
{
    int row = 0;
    while (row < DTYPES && dtypes[row].is != dtype) row++;
    BUG_IF(row == DTYPES);
    return row;
}

const char *torch_dtype_name(enum safetensors_dtype dtype)
{
    return pickle_class_name(dtypes[dtype_row(dtype)].dtype);
}

static void write_tensor(const struct torch_tensor *t, size_t key, struct text *out)
{
    char name[24];
    int64_t elements = 1, strides[TORCH_DIMS] = {0};
    for (int d = t->num_dims; d-- > 0;) strides[d] = elements, elements *= t->shape[d];
    snprintf(name, sizeof name, "%zu", key);
    pickle_write_global(out, "torch._utils", "_rebuild_tensor_v2");
    pickle_write_mark(out), pickle_write_mark(out);
    pickle_write_string(out, "storage");
    pickle_write_global(out, "torch", pickle_class_name(dtypes[dtype_row(t->dtype)].storage));
    pickle_write_string(out, name);
    pickle_write_string(out, "cpu");
    pickle_write_int(out, elements);
    pickle_write_tuple(out), pickle_write_persid(out);
    pickle_write_int(out, 0);
    pickle_write_int_tuple(out, t->shape, t->num_dims);
    pickle_write_int_tuple(out, strides, t->num_dims);
    pickle_write_bool(out, false);
    pickle_write_global(out, "collections", "OrderedDict");
    pickle_write_empty_tuple(out), pickle_write_reduce(out);
    pickle_write_tuple(out), pickle_write_reduce(out);
}

void torch_write_pickle(const struct torch_tensor *tensors, size_t count, struct text *out)
{
    bool is_root = count == 1 && !tensors->name[0];
    pickle_write_proto(out);
    if (!is_root) pickle_write_empty_dict(out), pickle_write_mark(out);
    for (size_t i = 0; i < count; i++) {
        if (!is_root) pickle_write_string(out, tensors[i].name);
        write_tensor(&tensors[i], i, out);
    }
    if (!is_root) pickle_write_setitems(out);
    pickle_write_stop(out);
}
