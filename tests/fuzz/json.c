/* json.c -- fuzzes the JSON parser: any bytes must yield a value or a clean error, and any quoted
 * string must be valid JSON. */
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct json *root = NULL;
    if (!json_parse((const char *)bytes, len, "input", &root)) json_free(root);
    struct text quoted = {0};
    char *string = heap_string((const char *)bytes, len);
    json_quote(&quoted, string);
    BUG_IF(json_parse(quoted.data, quoted.len, "quoted", &root));
    json_free(root);
    free(string);
    text_release(&quoted);
    return 0;
}
