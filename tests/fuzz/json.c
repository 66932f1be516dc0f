/* json.c -- any bytes as JSON: a value or a clear refusal, and nothing else. */
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct json *root = NULL;
    if (!json_parse((const char *)bytes, len, "input", &root)) json_free(root);
    return 0;
}
