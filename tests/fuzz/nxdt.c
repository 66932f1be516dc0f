/* nxdt.c -- fuzzes the import of NxD Training's YAML: any bytes must yield a configuration that
 * loads, or a clean error. */
// SPDX-License-Identifier: Apache-2.0
#include "imported.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char *const settings[] = {"trainer.devices=2", "optimizer.lr=0.1"};
    struct import im = {0};
    imported_check(&im, import_nxdt(&im, (const char *)bytes, len, "input.yaml", settings, 2));
    return 0;
}
