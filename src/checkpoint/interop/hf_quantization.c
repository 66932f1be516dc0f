// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_quantization.h"

#include <string.h>

#define DEQUANTIZE "; load a copy of the model without quantization"

static bool is_set(const struct json *v) { return v && !json_is_null(v); }

static const char *string_or(const struct json *v, const char *fallback)
{
    return json_is_string(v) ? json_string(v) : fallback;
}

static enum status check_block(const struct json *object, const char *key)
{
    const struct json *v = json_get(object, key), *item = json_is_array(v) ? json_first(v) : NULL;
    bool is_known = json_is_array(v) && json_count(v) == 2;
    if (!is_set(v)) return STATUS_OK;
    for (; item; item = json_next(item)) {
        int64_t size;
        is_known &= json_as_int(item, 0, INT32_MAX, &size) && size == 128;
    }
    if (!is_known)
        FAIL(UNSUPPORTED, "quantization_config: \"%s\" is not supported: must be [128, 128]", key);
    return STATUS_OK;
}

/* "config_groups": {NAME: {"weights": {"num_bits": 8, "type": "float", "strategy": ...}}} */
static enum status check_group(const struct json *group)
{
    const struct json *w = json_get(group, "weights");
    const char *strategy = string_or(json_get(w, "strategy"), "?");
    int64_t bits = 0;
    if (!json_as_int(json_get(w, "num_bits"), 0, 64, &bits) || bits != 8 ||
        !json_string_is(json_get(w, "type"), "float"))
        FAIL(UNSUPPORTED,
             "quantization_config: weights of %lld bits, type %s, are not supported: must be of 8 "
             "bits, type float" DEQUANTIZE,
             (long long)bits, string_or(json_get(w, "type"), "?"));
    if (strcmp(strategy, "tensor") && strcmp(strategy, "channel") && strcmp(strategy, "block"))
        FAIL(UNSUPPORTED,
             "quantization_config: strategy \"%s\" of weights is not supported: must be tensor, "
             "channel or block" DEQUANTIZE,
             strategy);
    return check_block(w, "block_structure");
}

static enum status check_compressed_tensors(const struct json *q)
{
    const struct json *groups = json_get(q, "config_groups");
    const struct json *sparsity = json_get(json_get(q, "sparsity_config"), "format");
    const struct json *transform = json_get(q, "transform_config");
    const char *format = string_or(json_get(q, "format"), "?");
    if (strcmp(format, "float-quantized") && strcmp(format, "naive-quantized"))
        FAIL(UNSUPPORTED,
             "quantization_config: format \"%s\" of compressed-tensors is not supported: must be "
             "float-quantized" DEQUANTIZE,
             format);
    if (is_set(sparsity) && !json_string_is(sparsity, "dense"))
        FAIL(UNSUPPORTED,
             "quantization_config: sparsity_config of format \"%s\" is not supported" DEQUANTIZE,
             string_or(sparsity, "?"));
    if (is_set(transform) && json_count(transform))
        FAIL(UNSUPPORTED, "quantization_config: transform_config is not supported" DEQUANTIZE);
    for (const struct json *g = json_is_object(groups) ? json_first(groups) : NULL; g;
         g = json_next(g))
        TRY(check_group(g));
    return STATUS_OK;
}

enum status hf_quantization_check(const struct json *root)
{
    const struct json *q = json_get(root, "quantization_config");
    if (!is_set(q)) q = json_get(root, "compression_config"); /* compressed-tensors before 0.6 */
    if (!is_set(q)) return STATUS_OK;
    if (!json_is_object(q)) FAIL(DATA, "\"quantization_config\": expected an object");
    const struct json *named = json_get(q, "quant_method");
    if (!json_is_string(named))
        FAIL(DATA, "\"quantization_config\": \"quant_method\" is missing or not a string");
    const char *method = json_string(named);
    if (!strcmp(method, "fbgemm_fp8")) return STATUS_OK;
    if (!strcmp(method, "fp8")) return check_block(q, "weight_block_size");
    if (!strcmp(method, "compressed-tensors")) return check_compressed_tensors(q);
    FAIL(UNSUPPORTED,
         "quantization_config: quant_method \"%s\" is not supported: must be fp8, fbgemm_fp8 or "
         "compressed-tensors" DEQUANTIZE,
         method);
}
