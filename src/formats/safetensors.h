/* safetensors.h -- the safetensors format: u64 header length, JSON header, tensors end to end.
 *
 * Reading is as strict as the format's own library: tensors tile the data exactly, no holes, no
 * overlaps, no trailing bytes, no key twice; a header is at most 100 MB.
 * Memory   An open file is mapped; names are owned by it.
 * Order    The writer sorts by name; all tensors of a file it writes have one dtype. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
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
    uint64_t begin, end; /* bytes, from the start of the data */
    uint64_t elements;
};

struct safetensors {
    char *path;
    struct file_map map;
    uint64_t data;                      /* where the tensors begin in the file */
    struct safetensors_tensor *tensors; /* in the order of their data */
    size_t count;
    const struct safetensors_tensor **by_name; /* the same, in the order of their names */
};

const char *safetensors_dtype_name(enum safetensors_dtype d);
size_t safetensors_dtype_bytes(enum safetensors_dtype d);
/* The dtype of that name; false: there is none. */
bool safetensors_dtype_find(const char *name, enum safetensors_dtype *out);

/* DATA: what is wrong with the file, and with which tensor.  UNSUPPORTED: a dtype that is not
 * listed, as those of less than a byte are. */
enum status safetensors_open(struct safetensors *s, const char *path);
void safetensors_close(struct safetensors *s);
/* The header alone, from bytes that need no file; for safetensors_open and its fuzzer.  s->path
 * must be set; after a failure, too, `s` is to be closed. */
enum status safetensors_parse(struct safetensors *s, const unsigned char *bytes, uint64_t size);

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name);
/* The whole tensor as f32, or as bf16, whose numbers stay as they are where they are BF16 already.
 * UNSUPPORTED: its numbers are not F32, BF16, F16 or F64. */
enum status safetensors_read_f32(const struct safetensors *s, const struct safetensors_tensor *t,
                                 float *out);
enum status safetensors_read_bf16(const struct safetensors *s, const struct safetensors_tensor *t,
                                  uint16_t *out);
/* `count` of its numbers from `first` on, which it must have; as f32, and as bf16. */
enum status safetensors_read_part(const struct safetensors *s, const struct safetensors_tensor *t,
                                  uint64_t first, uint64_t count, float *out);
enum status safetensors_read_part_bf16(const struct safetensors *s,
                                       const struct safetensors_tensor *t, uint64_t first,
                                       uint64_t count, uint16_t *out);

/* A header for these tensors: begin and end are filled in, in the order given (sort by name
 * first).  `header` gets the length and the JSON, padded to 8 bytes; *total the data's bytes. */
void safetensors_header(struct safetensors_tensor *tensors, size_t count, struct text *header,
                        uint64_t *total);
int safetensors_by_name(const void *a, const void *b); /* for qsort */

/* n numbers of F32, BF16, F16 or F64, at any address, as f32. */
void safetensors_widen(enum safetensors_dtype dtype, const unsigned char *from, uint64_t n,
                       float *out);
/* n numbers to another type, into `out` of n * safetensors_dtype_bytes(to): F32, BF16 or F16. */
void safetensors_convert(const float *x, size_t n, enum safetensors_dtype to, void *out);
