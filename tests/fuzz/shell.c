/* shell.c -- fuzzes the import of launch scripts: any bytes must yield a configuration that loads,
 * or a clean error. */
// SPDX-License-Identifier: Apache-2.0
#include "imported.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char *const words[] = {"one", "training.steps=3"};
    struct import im = {0};
    imported_check(&im, import_script(&im, (const char *)bytes, len, "/input.sh", words, 2));
    return 0;
}
