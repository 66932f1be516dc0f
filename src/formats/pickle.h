/* pickle.h -- a safe unpickler: interprets Python pickles, protocols 2 to 5, as data, and never
 * executes code.
 *
 * The globals of PICKLE_CLASSES are symbolic: a REDUCE or NEWOBJ of one yields a value that records
 * the call.  pickle_parse rejects a pickle that names any other global; for pickle_parse_any it is
 * symbolic, too.
 * Memory   Values live as long as the pickle, and strings point into its bytes.  The number of
 *          values and of memo slots is at most the number of opcodes.
 * Cycles   Values may be shared, and a list may contain itself: callers must bound recursion.
 * Source   Lib/pickletools.py of CPython. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* id, module (its submodules match, too), name */
#define PICKLE_CLASSES(X)                                                                          \
    X(ORDERED_DICT, "collections", "OrderedDict")                                                  \
    X(SIZE, "torch", "Size")                                                                       \
    X(TENSOR, "torch._utils", "_rebuild_tensor")                                                   \
    X(TENSOR_V2, "torch._utils", "_rebuild_tensor_v2")                                             \
    X(TENSOR_V3, "torch._utils", "_rebuild_tensor_v3")                                             \
    X(PARAMETER, "torch._utils", "_rebuild_parameter")                                             \
    X(FROM_TYPE, "torch._tensor", "_rebuild_from_type_v2")                                         \
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
        PICKLE_CLASS_COUNT,
    PICKLE_UNKNOWN = PICKLE_CLASS_COUNT /* any other class: see pickle_parse_any */
};

/* Its name within its module: "float32". */
const char *pickle_class_name(enum pickle_class c);

enum pickle_kind {
    PICKLE_IS_NONE,
    PICKLE_IS_BOOL,
    PICKLE_IS_INT,
    PICKLE_IS_FLOAT,
    PICKLE_IS_STRING,     /* str (UTF-8) or bytes */
    PICKLE_IS_TUPLE,      /* items */
    PICKLE_IS_LIST,       /* items; a set, too */
    PICKLE_IS_DICT,       /* alternating keys and values; an OrderedDict, too */
    PICKLE_IS_CLASS,      /* class */
    PICKLE_IS_OBJECT,     /* an instance of class; items: the argument tuple, then any state */
    PICKLE_IS_PERSISTENT, /* one item: the persistent ID, which names data outside the pickle */
};

struct pickle_value {
    enum pickle_kind kind;
    enum pickle_class class;
    int64_t integer; /* of a bool, too */
    double real;
    const char *text; /* points into the pickle: not NUL-terminated, and may contain NULs */
    size_t len;
    const struct pickle_value **items;
    size_t count, capacity;
};

struct pickle {
    const struct pickle_value *root;
    struct pickle_value **blocks; /* owned; they hold the values */
    size_t num_values;
};

/* Interprets the bytes up to the STOP opcode, and sets *used to their number.  DATA: the pickle is
 * corrupt, or names an unknown class; the message has the byte offset.  Release `p` even after a
 * failure. */
enum status pickle_parse(struct pickle *p, const unsigned char *bytes, size_t len, const char *name,
                         size_t *used);
/* The same for pickles with any classes, which are data, too: a call of an unknown one, or of the
 * result of a call, is an object of PICKLE_UNKNOWN.  Items appended to it are ignored, integers
 * beyond 64 bits become None. */
enum status pickle_parse_any(struct pickle *p, const unsigned char *bytes, size_t len,
                             const char *name, size_t *used);
void pickle_release(struct pickle *p);

/* For NULL, or a value of another kind, the functions below return NULL, false or -1. */
bool pickle_is_string(const struct pickle_value *v, const char *text);
const struct pickle_value *pickle_item(const struct pickle_value *v, size_t i);
/* The value of a dict's string key. */
const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *key);
/* The i-th constructor argument of an object of that class. */
const struct pickle_value *pickle_argument(const struct pickle_value *v, enum pickle_class class,
                                           size_t i);
/* An attribute of an object of that class, if its state is a dict. */
const struct pickle_value *pickle_field(const struct pickle_value *v, enum pickle_class class,
                                        const char *field);
/* Copies a tuple of at most `max` non-negative integers, and returns their number; else -1. */
int pickle_int_tuple(const struct pickle_value *v, int max, int64_t *out);
