/* gguf.h -- writes the header of a GGUF file (version 3), and converts weights to its types.
 *
 * Order    Add the metadata key by key, then build the header with the tensor infos, then write the
 *          tensors, each padded to GGUF_ALIGNMENT.
 * Source   ggml, docs/gguf.md. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { GGUF_ALIGNMENT = 32, GGUF_BLOCK = 32, GGUF_BLOCK_BYTES = 34 };

/* ggml_type */
enum gguf_type { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q8_0 = 8, GGUF_BF16 = 30 };
/* gguf_metadata_value_type: of a value, and of the items of an array. */
enum gguf_value_type {
    GGUF_VALUE_U32 = 4,
    GGUF_VALUE_I32 = 5,
    GGUF_VALUE_F32 = 6,
    GGUF_VALUE_BOOL = 7,
    GGUF_VALUE_STRING = 8,
    GGUF_VALUE_ARRAY = 9,
};

/* The metadata key-value pairs, serialized. */
struct gguf_metadata {
    struct text bytes;
    uint64_t count;
};
void gguf_metadata_release(struct gguf_metadata *k);
void gguf_add_u32(struct gguf_metadata *k, const char *key, uint32_t value);
void gguf_add_f32(struct gguf_metadata *k, const char *key, double value);
void gguf_add_bool(struct gguf_metadata *k, const char *key, bool value);
void gguf_add_string(struct gguf_metadata *k, const char *key, const char *value);
/* Begins an array; the caller must then add exactly `count` items. */
void gguf_begin_array(struct gguf_metadata *k, const char *key, enum gguf_value_type kind,
                      uint64_t count);
void gguf_add_item_u32(struct gguf_metadata *k, uint32_t value); /* for I32, too */
void gguf_add_item_f32(struct gguf_metadata *k, float value);
void gguf_add_item_string(struct gguf_metadata *k, const char *bytes, size_t len);

struct gguf_tensor {
    char name[64];
    enum gguf_type type;
    int num_dims;
    uint64_t dims[2]; /* columns first */
    /* Set by gguf_build_header; `offset` counts from the end of the header. */
    uint64_t offset, bytes;
};

/* The size of `count` elements; a multiple of GGUF_BLOCK for Q8_0. */
uint64_t gguf_bytes(enum gguf_type type, uint64_t count);
/* Builds the padded header, and sets *total to the size of all tensors with their padding. */
void gguf_build_header(const struct gguf_metadata *k, struct gguf_tensor *tensors, size_t count,
                       struct text *head, uint64_t *total);
/* Bytes of padding after `bytes`. */
uint64_t gguf_padding(uint64_t bytes);

/* Converts f32 elements to `type`, into gguf_bytes(type, count) bytes of `out`.  DATA: an element
 * to be quantized to Q8_0 is not finite. */
enum status gguf_convert(enum gguf_type type, const float *x, size_t count, unsigned char *out);
