// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_quantization.h"

#include "test.h"

static enum status check(const char *key, const char *value)
{
    struct json *root;
    struct text t = {0};
    text_addf(&t, "{\"%s\": %s}", key, value);
    CHECK_STATUS(OK, json_parse(t.data, t.len, "config.json", &root));
    enum status st = hf_quantization_check(root);
    json_free(root);
    text_release(&t);
    return st;
}

#define WEIGHTS(type, bits, strategy)                                                              \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\","                  \
    " \"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": " bits ", \"type\": \"" type   \
    "\", \"strategy\": " strategy "}}}}"

TEST(quantization_in_fp8_is_accepted)
{
    static const char *const accepted[] = {
        "null",
        "{\"quant_method\": \"fbgemm_fp8\", \"activation_scale_ub\": 1200.0}",
        "{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}",
        "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}",
        "{\"quant_method\": \"fp8\", \"weight_block_size\": null}",
        WEIGHTS("float", "8", "\"tensor\""),
        WEIGHTS("float", "8", "\"channel\""),
        WEIGHTS("float", "8", "\"block\", \"block_structure\": [128, 128]"),
    };
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++)
        CHECK_STATUS(OK, check("quantization_config", accepted[i]));
    CHECK_STATUS(OK, check("hidden_size", "1"));
}

TEST(other_quantization_is_rejected_by_name)
{
    static const struct {
        enum status status;
        const char *config, *message;
    } rows[] = {
        {STATUS_UNSUPPORTED, "{\"quant_method\": \"gptq\"}", "\"gptq\" is not supported"},
        {STATUS_UNSUPPORTED, "{\"quant_method\": \"awq\"}", "\"awq\" is not supported"},
        {STATUS_UNSUPPORTED, "{\"quant_method\": \"bitsandbytes\"}", "\"bitsandbytes\""},
        {STATUS_UNSUPPORTED, "{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}",
         "\"weight_block_size\" is not supported: must be [128, 128]"},
        {STATUS_UNSUPPORTED, "{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}",
         "must be [128, 128]"},
        {STATUS_UNSUPPORTED, WEIGHTS("int", "8", "\"channel\""), "8 bits, type int,"},
        {STATUS_UNSUPPORTED, WEIGHTS("float", "4", "\"tensor\""), "4 bits, type float,"},
        {STATUS_UNSUPPORTED, WEIGHTS("float", "8", "\"group\""), "strategy \"group\""},
        {STATUS_UNSUPPORTED,
         "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}",
         "format \"pack-quantized\""},
        {STATUS_UNSUPPORTED,
         "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\","
         " \"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}}",
         "sparsity_config of format \"sparse-24-bitmask\""},
        {STATUS_DATA, "{\"bits\": 4}", "\"quant_method\" is missing"},
        {STATUS_DATA, "7", "expected an object"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(check("quantization_config", rows[i].config) == rows[i].status);
        CHECK_MESSAGE(rows[i].message);
    }
    CHECK_STATUS(UNSUPPORTED, check("compression_config", rows[8].config));
}
