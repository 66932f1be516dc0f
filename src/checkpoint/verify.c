// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/chunk_reader.h"
#include "checkpoint/interop/model_files.h"
#include "model/value_check.h"

#include <stdlib.h>

enum { VALUES = 1 << 18 }; /* elements that are read from a mapped file at a time */

static enum value_kind value_kind_of(const struct model_tensor *t)
{
    static const enum value_kind kinds[] = {[TENSOR_WEIGHT] = VALUE_WEIGHT,
                                            [TENSOR_EXP_AVG] = VALUE_EXP_AVG,
                                            [TENSOR_EXP_AVG_SQ] = VALUE_EXP_AVG_SQ};
    return kinds[tensor_name_kind(t->is.name)];
}

static enum status check_tensor(const char *folder, struct model_tensor *t, float *chunk,
                                size_t size)
{
    enum value_kind kind = value_kind_of(t);
    enum status st = STATUS_OK;
    for (uint64_t at = 0, n, bad; at < t->is.elements && !st; at += n) {
        n = t->is.elements - at < size ? t->is.elements - at : size;
        TRY_OUT(tensor_reader_read(&t->reader, at, n, F32, chunk));
        bad = value_check_find(kind, F32, chunk, n);
        if (bad < n)
            st = value_check_fail(STATUS_DATA, folder,
                                  &(struct bad_element){.kind = kind,
                                                        .name = t->is.name,
                                                        .element = at + bad,
                                                        .value = (double)chunk[bad]});
    }
out:
    tensor_reader_close(&t->reader);
    return st;
}

enum status checkpoint_check_values(const char *folder, bool moments)
{
    struct model_files files;
    float *chunk = heap(VALUES * sizeof *chunk);
    enum status st = STATUS_OK;
    for (int part = 0; part < (moments ? 1 : 2) && !st; part++) {
        st = part      ? model_files_open_ema(&files, folder)
             : moments ? model_files_open_moments(&files, folder)
                       : model_files_open(&files, folder);
        for (size_t i = 0; !st && i < model_files_num_tensors(&files); i++) {
            struct model_tensor t = model_files_tensor(&files, i);
            st = check_tensor(folder, &t, chunk, VALUES);
        }
        model_files_close(&files);
    }
    free(chunk);
    return st;
}

/* A checkpoint whose files are verified. */
struct verification {
    const char *folder;
    struct chunk_reader reader;
    struct failure bad_value; /* the first; checksums come before it, as they say why */
};

static void check_part(void *context, uint64_t at, const void *bytes, size_t len)
{
    struct value_check *check = context;
    size_t each = dtype_bytes(check->dtype);
    value_check_part(check, (size_t)(at / each), bytes, len / each);
}

/* Reads a tensor once, for its checksums and its values. */
static enum status verify_bytes(struct verification *v, const struct model_tensor *t, size_t file,
                                uint64_t offset)
{
    enum dtype dtype = t->is.dtype == SAFETENSORS_F32 ? F32 : BF16;
    uint64_t bytes = t->is.end - t->is.begin;
    for (uint64_t at = 0, n; at < bytes; at += n) {
        struct value_check check = {.kind = value_kind_of(t), .dtype = dtype};
        const struct chunk_target target = {NULL, check_part, &check};
        n = bytes - at < CHUNK_READER_MOST ? bytes - at : CHUNK_READER_MOST;
        TRY(chunk_reader_read(&v->reader, file, offset + at, (size_t)n, &target));
        if (!check.is_bad || v->bad_value.status) continue;
        const struct bad_element bad = {.kind = check.kind,
                                        .name = t->is.name,
                                        .element = at / dtype_bytes(dtype) + check.element,
                                        .value = check.value};
        status_save(&v->bad_value, value_check_fail(STATUS_DATA, v->folder, &bad));
    }
    return STATUS_OK;
}

static enum status verify_tensor(struct verification *v, struct model_tensor *t)
{
    size_t file;
    uint64_t offset;
    bool has_values = t->is.dtype == SAFETENSORS_F32 || t->is.dtype == SAFETENSORS_BF16;
    if (chunk_reader_find(&v->reader, &t->reader, &file, &offset) && has_values)
        return verify_bytes(v, t, file, offset);
    float *chunk = heap(VALUES * sizeof *chunk);
    enum status st = check_tensor(v->folder, t, chunk, VALUES);
    free(chunk);
    return st;
}

static enum status verify_tensors(struct verification *v, const struct model_files *files)
{
    for (size_t i = 0; i < model_files_num_tensors(files); i++) {
        struct model_tensor t = model_files_tensor(files, i);
        TRY(verify_tensor(v, &t));
    }
    return STATUS_OK;
}

enum status checkpoint_verify(const char *folder)
{
    struct model_files weights = {0}, ema = {0}, moments = {0};
    struct verification v = {.folder = folder};
    enum status st = STATUS_OK;
    TRY_OUT(chunk_reader_open(&v.reader, folder, true, comm_self()));
    TRY_OUT(model_files_open(&weights, folder));
    TRY_OUT(model_files_open_ema(&ema, folder));
    TRY_OUT(model_files_open_moments(&moments, folder));
    TRY_OUT(verify_tensors(&v, &weights));
    TRY_OUT(verify_tensors(&v, &ema));
    TRY_OUT(verify_tensors(&v, &moments));
    chunk_reader_use_all(&v.reader);
    TRY_OUT(chunk_reader_finish(&v.reader, comm_self()));
    TRY_OUT(status_restore(&v.bad_value));
out:
    model_files_close(&weights), model_files_close(&ema), model_files_close(&moments);
    chunk_reader_close(&v.reader);
    return st;
}
