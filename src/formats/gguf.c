// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf.h"

#include "formats/safetensors.h"

#include <math.h>
#include <string.h>

static void add_bytes(struct text *t, const char *bytes, size_t len)
{
    text_add_le(t, len, 8);
    text_add(t, bytes, len);
}

static void add_key(struct gguf_metadata *k, const char *key, enum gguf_value_type kind)
{
    add_bytes(&k->bytes, key, strlen(key));
    text_add_le(&k->bytes, kind, 4);
    k->count++;
}

void gguf_metadata_release(struct gguf_metadata *k)
{
    text_release(&k->bytes);
    *k = (struct gguf_metadata){0};
}

void gguf_add_item_u32(struct gguf_metadata *k, uint32_t value)
{
    text_add_le(&k->bytes, value, 4);
}

void gguf_add_item_f32(struct gguf_metadata *k, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    text_add_le(&k->bytes, bits, 4);
}

void gguf_add_item_string(struct gguf_metadata *k, const char *bytes, size_t len)
{
    add_bytes(&k->bytes, bytes, len);
}

void gguf_add_u32(struct gguf_metadata *k, const char *key, uint32_t value)
{
    add_key(k, key, GGUF_VALUE_U32);
    gguf_add_item_u32(k, value);
}

void gguf_add_f32(struct gguf_metadata *k, const char *key, double value)
{
    add_key(k, key, GGUF_VALUE_F32);
    gguf_add_item_f32(k, (float)value);
}

void gguf_add_bool(struct gguf_metadata *k, const char *key, bool value)
{
    add_key(k, key, GGUF_VALUE_BOOL);
    text_add_le(&k->bytes, value, 1);
}

void gguf_add_string(struct gguf_metadata *k, const char *key, const char *value)
{
    add_key(k, key, GGUF_VALUE_STRING);
    gguf_add_item_string(k, value, strlen(value));
}

void gguf_begin_array(struct gguf_metadata *k, const char *key, enum gguf_value_type kind,
                      uint64_t count)
{
    add_key(k, key, GGUF_VALUE_ARRAY);
    text_add_le(&k->bytes, kind, 4);
    text_add_le(&k->bytes, count, 8);
}

uint64_t gguf_bytes(enum gguf_type type, uint64_t count)
{
    if (type == GGUF_Q8_0) return count / GGUF_BLOCK * GGUF_BLOCK_BYTES;
    return count * (type == GGUF_F32 ? 4 : 2);
}

uint64_t gguf_padding(uint64_t bytes)
{
    return (GGUF_ALIGNMENT - bytes % GGUF_ALIGNMENT) % GGUF_ALIGNMENT;
}

void gguf_build_header(const struct gguf_metadata *k, struct gguf_tensor *tensors, size_t count,
                       struct text *head, uint64_t *total)
{
    static const char zeros[GGUF_ALIGNMENT];
    *total = 0;
    text_adds(head, "GGUF");
    text_add_le(head, 3, 4);
    text_add_le(head, count, 8);
    text_add_le(head, k->count, 8);
    text_add(head, k->bytes.data, k->bytes.len);
    for (size_t i = 0; i < count; i++) {
        struct gguf_tensor *t = &tensors[i];
        uint64_t elements = 1;
        add_bytes(head, t->name, strlen(t->name));
        text_add_le(head, (uint64_t)t->num_dims, 4);
        for (int d = 0; d < t->num_dims; d++) {
            elements *= t->dims[d];
            text_add_le(head, t->dims[d], 8);
        }
        t->offset = *total;
        t->bytes = gguf_bytes(t->type, elements);
        *total += t->bytes + gguf_padding(t->bytes);
        text_add_le(head, t->type, 4);
        text_add_le(head, t->offset, 8);
    }
    text_add(head, zeros, gguf_padding(head->len));
}

/* Q8_0: an f16 scale, then int8 quants; halves round away from zero, as in ggml. */
static enum status quantize_block(const float *x, unsigned char *out)
{
    float amax = 0;
    for (int i = 0; i < GGUF_BLOCK; i++) {
        if (!isfinite(x[i])) FAIL(DATA, "cannot quantize %g to q8_0", (double)x[i]);
        if (fabsf(x[i]) > amax) amax = fabsf(x[i]);
    }
    float scale = amax / 127, inverse = scale > 0 ? 1 / scale : 0;
    if (!isfinite(inverse)) inverse = 0; /* the scale underflows to 0 in f16 */
    safetensors_from_f32(&scale, 1, SAFETENSORS_F16, out);
    for (int i = 0; i < GGUF_BLOCK; i++) out[2 + i] = (unsigned char)(int)roundf(x[i] * inverse);
    return STATUS_OK;
}

enum status gguf_convert(enum gguf_type type, const float *x, size_t count, unsigned char *out)
{
    if (type == GGUF_Q8_0) {
        for (size_t i = 0; i < count / GGUF_BLOCK; i++)
            TRY(quantize_block(x + i * GGUF_BLOCK, out + i * GGUF_BLOCK_BYTES));
        return STATUS_OK;
    }
    safetensors_from_f32(x, count,
                         type == GGUF_F32   ? SAFETENSORS_F32
                         : type == GGUF_F16 ? SAFETENSORS_F16
                                            : SAFETENSORS_BF16,
                         out);
    return STATUS_OK;
}
