/* gguf.h -- the head of a GGUF file (version 3), and numbers as its tensors have them.
 *
 * Order    Keys one by one, then the head with the tensors' places, then the tensors, each padded
 *          to GGUF_ALIGNMENT. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { GGUF_ALIGNMENT = 32, GGUF_BLOCK = 32, GGUF_BLOCK_BYTES = 34 };

enum gguf_type { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q8_0 = 8, GGUF_BF16 = 30 };
/* Of values, and of arrays' items. */
enum gguf_kind {
    GGUF_KIND_U32 = 4,
    GGUF_KIND_I32 = 5,
    GGUF_KIND_F32 = 6,
    GGUF_KIND_BOOL = 7,
    GGUF_KIND_STRING = 8,
    GGUF_KIND_ARRAY = 9,
};

struct gguf_keys {
    struct text bytes;
    uint64_t count;
};
void gguf_keys_release(struct gguf_keys *k);
void gguf_put_u32(struct gguf_keys *k, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_keys *k, const char *key, double value);
void gguf_put_bool(struct gguf_keys *k, const char *key, bool value);
void gguf_put_string(struct gguf_keys *k, const char *key, const char *value);
/* An array, whose `count` items follow. */
void gguf_begin_array(struct gguf_keys *k, const char *key, enum gguf_kind kind, uint64_t count);
void gguf_item_u32(struct gguf_keys *k, uint32_t value); /* I32, too */
void gguf_item_f32(struct gguf_keys *k, float value);
void gguf_item_string(struct gguf_keys *k, const char *bytes, size_t len);

struct gguf_tensor {
    char name[64];
    enum gguf_type type;
    int num_dims;
    uint64_t dims[2];       /* columns first */
    uint64_t offset, bytes; /* gguf_head fills them in: from the end of the head on */
};

/* Bytes of `count` numbers; Q8_0: whole blocks. */
uint64_t gguf_bytes(enum gguf_type type, uint64_t count);
/* The head, padded; *total: bytes of the tensors with their padding. */
void gguf_head(const struct gguf_keys *k, struct gguf_tensor *tensors, size_t count,
               struct text *head, uint64_t *total);
uint64_t gguf_padding(uint64_t bytes);

/* Numbers of another type, into `out` of gguf_bytes(type, count).  DATA: Q8_0 of a number that is
 * not finite. */
enum status gguf_convert(enum gguf_type type, const float *x, size_t count, unsigned char *out);
