/* safetensors.h -- the safetensors format: u64 header length, JSON header, contiguous tensors.
 *
 * The reader is as strict as the reference library: tensors cover the data without holes, overlaps
 * or trailing bytes, no key appears twice, and the header is at most 100 MB.
 * Memory   An open file is mapped, and owns the names. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_map.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* name, bits */
#define SAFETENSORS_LIST(X)                                                                        \
    X(BOOL, 8)                                                                                     \
    X(U8, 8)                                                                                       \
    X(I8, 8)                                                                                       \
    X(F8_E5M2, 8)                                                                                  \
    X(F8_E4M3, 8)                                                                                  \
    X(F8_E8M0, 8)                                                                                  \
    X(F8_E4M3FNUZ, 8)                                                                              \
    X(F8_E5M2FNUZ, 8)                                                                              \
    X(I16, 16)                                                                                     \
    X(U16, 16)                                                                                     \
    X(F16, 16)                                                                                     \
    X(BF16, 16)                                                                                    \
    X(I32, 32)                                                                                     \
    X(U32, 32)                                                                                     \
    X(F32, 32)                                                                                     \
    X(C64, 64)                                                                                     \
    X(F64, 64)                                                                                     \
    X(I64, 64)                                                                                     \
    X(U64, 64)

enum safetensors_dtype {
#define X(name, bits) SAFETENSORS_##name,
    SAFETENSORS_LIST(X)
#undef X
        SAFETENSORS_DTYPES
};

enum { SAFETENSORS_DIMS = 8 };

struct safetensors_tensor {
    char *name;
    enum safetensors_dtype dtype;
    int num_dims;
    int64_t shape[SAFETENSORS_DIMS];
    uint64_t begin, end; /* byte offsets from the start of the data */
    uint64_t elements;
};

struct safetensors {
    char *path;
    struct file_map map;
    uint64_t data;                      /* file offset of the data */
    struct safetensors_tensor *tensors; /* sorted by data offset */
    size_t count;
    const struct safetensors_tensor **by_name; /* the same, sorted by name */
};

const char *safetensors_dtype_name(enum safetensors_dtype d);
size_t safetensors_dtype_bytes(enum safetensors_dtype d);
/* Finds a dtype by name; returns false if it is unknown. */
bool safetensors_dtype_find(const char *name, enum safetensors_dtype *out);

/* DATA: the file is corrupt; the message names the tensor.  UNSUPPORTED: a dtype that is not listed
 * above, such as sub-byte dtypes. */
enum status safetensors_open(struct safetensors *s, const char *path);
void safetensors_close(struct safetensors *s);
/* Reads the header of a file image that the caller keeps.  The caller sets s->path, and calls
 * safetensors_close even after a failure. */
enum status safetensors_parse(struct safetensors *s, const unsigned char *bytes, uint64_t size);

/* Replaces every name by what `rename` returns for it, on the heap.  DATA: two names are equal. */
enum status safetensors_rename(struct safetensors *s, char *(*rename)(const char *name));
/* Rows [row, row + rows) of a tensor, as a tensor of its own. */
struct safetensors_part {
    const char *name;
    int64_t row, rows;
};
/* Replaces tensor `index` by these parts, which exist in it; of a tensor without dimensions, by
 * copies of it.  Call safetensors_index after the last one. */
void safetensors_split(struct safetensors *s, size_t index, const struct safetensors_part *parts,
                       size_t count);
/* Sorts the tensors.  DATA: two have the same name. */
enum status safetensors_index(struct safetensors *s);
/* Finds a tensor by name; NULL if it does not exist. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name);
/* Read `count` elements from element `first` on, which must exist, as f32 or bf16; BF16 data is
 * copied bit for bit.  Call file_map_check(&s->map) before using them.  UNSUPPORTED: the dtype is
 * not F32, BF16, F16, F64, F8_E4M3 or F8_E5M2. */
enum status safetensors_read_part(const struct safetensors *s, const struct safetensors_tensor *t,
                                  uint64_t first, uint64_t count, float *out);
enum status safetensors_read_part_bf16(const struct safetensors *s,
                                       const struct safetensors_tensor *t, uint64_t first,
                                       uint64_t count, uint16_t *out);

/* Builds the header (length and JSON, padded to 8 bytes) of a file with these tensors in this
 * order, and sets their `begin`, `end` and `elements`.  Callers sort by name first.  *total: bytes
 * of the data. */
void safetensors_build_header(struct safetensors_tensor *tensors, size_t count, struct text *header,
                              uint64_t *total);
int safetensors_compare_names(const void *a, const void *b); /* for qsort */

/* Converts n elements of F32, BF16, F16, F64, F8_E4M3 or F8_E5M2 to f32.  `from` need not be
 * aligned. */
void safetensors_to_f32(enum safetensors_dtype dtype, const unsigned char *from, uint64_t n,
                        float *out);
/* Converts n elements from f32 to F32, BF16 or F16, rounding to nearest even.  `out` has
 * n * safetensors_dtype_bytes(to) bytes, and need not be aligned. */
void safetensors_from_f32(const float *x, size_t n, enum safetensors_dtype to, void *out);
