/* pickle.h -- Python pickles, protocols 2 to 5, as data: what they would build, and nothing is run.
 *
 * A known list of classes and functions (PICKLE_CLASSES) stands for itself: calling one makes a
 * value that says what was called with what.  A pickle that names another is refused.
 * Memory   Values live as long as the pickle, and text points into its bytes.  There are never more
 *          values, or places in the memo, than opcodes.
 * Order    Values may be shared, and a list may hold itself: who follows them bounds how far. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* id, module (or what is below it), name */
#define PICKLE_CLASSES(X)                                                                          \
    X(ORDERED_DICT, "collections", "OrderedDict")                                                  \
    X(SIZE, "torch", "Size")                                                                       \
    X(TENSOR, "torch._utils", "_rebuild_tensor")                                                   \
    X(TENSOR_V2, "torch._utils", "_rebuild_tensor_v2")                                             \
    X(TENSOR_V3, "torch._utils", "_rebuild_tensor_v3")                                             \
    X(PARAMETER, "torch._utils", "_rebuild_parameter")                                             \
    X(DOUBLE_STORAGE, "torch", "DoubleStorage")                                                    \
    X(FLOAT_STORAGE, "torch", "FloatStorage")                                                      \
    X(HALF_STORAGE, "torch", "HalfStorage")                                                        \
    X(BFLOAT16_STORAGE, "torch", "BFloat16Storage")                                                \
    X(LONG_STORAGE, "torch", "LongStorage")                                                        \
    X(INT_STORAGE, "torch", "IntStorage")                                                          \
    X(SHORT_STORAGE, "torch", "ShortStorage")                                                      \
    X(CHAR_STORAGE, "torch", "CharStorage")                                                        \
    X(BYTE_STORAGE, "torch", "ByteStorage")                                                        \
    X(BOOL_STORAGE, "torch", "BoolStorage")                                                        \
    X(COMPLEX_STORAGE, "torch", "ComplexFloatStorage")                                             \
    X(COMPLEX_DOUBLE_STORAGE, "torch", "ComplexDoubleStorage")                                     \
    X(UNTYPED_STORAGE, "torch.storage", "UntypedStorage")                                          \
    X(DOUBLE, "torch", "float64")                                                                  \
    X(FLOAT, "torch", "float32")                                                                   \
    X(HALF, "torch", "float16")                                                                    \
    X(BFLOAT16, "torch", "bfloat16")                                                               \
    X(LONG, "torch", "int64")                                                                      \
    X(INT, "torch", "int32")                                                                       \
    X(SHORT, "torch", "int16")                                                                     \
    X(CHAR, "torch", "int8")                                                                       \
    X(BYTE, "torch", "uint8")                                                                      \
    X(BOOL, "torch", "bool")                                                                       \
    X(COMPLEX, "torch", "complex64")                                                               \
    X(COMPLEX_DOUBLE, "torch", "complex128")                                                       \
    X(LAYOUT, "torch.serialization", "_get_layout")                                                \
    X(METADATA, "torch.distributed", "Metadata")                                                   \
    X(TENSOR_STORAGE_METADATA, "torch.distributed", "TensorStorageMetadata")                       \
    X(BYTES_STORAGE_METADATA, "torch.distributed", "BytesStorageMetadata")                         \
    X(CHUNK_STORAGE_METADATA, "torch.distributed", "ChunkStorageMetadata")                         \
    X(TENSOR_PROPERTIES, "torch.distributed", "TensorProperties")                                  \
    X(METADATA_INDEX, "torch.distributed", "MetadataIndex")                                        \
    X(STORAGE_META, "torch.distributed", "StorageMeta")                                            \
    X(STORAGE_INFO, "torch.distributed", "_StorageInfo")                                           \
    X(TENSOR_REFERENCE, "torch_xla", "TensorReference")                                            \
    X(MEMORY_FORMAT, "torch.distributed", "_MEM_FORMAT_ENCODING")                                  \
    X(OLD_MEMORY_FORMAT, "torch.distributed", "MEM_FORMAT_ENCODING")                               \
    X(PATH, "pathlib", "PosixPath")                                                                \
    X(PURE_PATH, "pathlib", "PurePosixPath")                                                       \
    X(GETATTR, "builtins", "getattr")                                                              \
    X(OLD_GETATTR, "__builtin__", "getattr")                                                       \
    X(SET, "builtins", "set")                                                                      \
    X(OLD_SET, "__builtin__", "set")                                                               \
    X(ENCODE, "_codecs", "encode")

enum pickle_class {
#define X(id, module, name) PICKLE_##id,
    PICKLE_CLASSES(X)
#undef X
        PICKLE_CLASS_COUNT
};

enum pickle_kind {
    PICKLE_IS_NONE,
    PICKLE_IS_BOOL,
    PICKLE_IS_INT,
    PICKLE_IS_REAL,
    PICKLE_IS_TEXT,       /* of bytes or of characters (UTF-8) */
    PICKLE_IS_TUPLE,      /* items */
    PICKLE_IS_LIST,       /* items; of a set, too */
    PICKLE_IS_DICT,       /* keys and values in turn; of an OrderedDict, too */
    PICKLE_IS_CLASS,      /* class */
    PICKLE_IS_OBJECT,     /* class, called with one item, a tuple; then maybe its state */
    PICKLE_IS_PERSISTENT, /* one item: what a file outside the pickle is known by */
};

struct pickle_value {
    enum pickle_kind kind;
    enum pickle_class class;
    int64_t integer; /* of BOOL, too */
    double real;
    const char *text; /* in the pickle's bytes: not ended by a NUL, and maybe with some in it */
    size_t len;
    const struct pickle_value **items;
    size_t count, room;
};

struct pickle {
    const struct pickle_value *root;
    struct pickle_value **blocks; /* owned; what the values are in */
    size_t num_values;
};

/* Of the bytes from the first to the opcode STOP; *used of them.  DATA: what is wrong, and at which
 * byte; a class that is not known.  After a failure, too, release it. */
enum status pickle_parse(struct pickle *p, const unsigned char *bytes, size_t len, const char *name,
                         size_t *used);
void pickle_release(struct pickle *p);

/* The functions below take NULL, and give NULL or false for it and for values of other kinds. */
bool pickle_is_text(const struct pickle_value *v, const char *text);
const struct pickle_value *pickle_item(const struct pickle_value *v, size_t i);
/* The value of a dictionary's key, which is a text. */
const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *key);
/* The i-th argument of an object of that class. */
const struct pickle_value *pickle_argument(const struct pickle_value *v, enum pickle_class class,
                                           size_t i);
/* A field of an object of that class whose state is a dictionary. */
const struct pickle_value *pickle_field(const struct pickle_value *v, enum pickle_class class,
                                        const char *field);
/* A tuple of at most `most` whole numbers from 0 on; their number, or -1. */
int pickle_integers(const struct pickle_value *v, int most, int64_t *out);
