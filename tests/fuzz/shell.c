/* shell.c -- any bytes as a script that starts a training: a configuration of ours that loads, or a
 * clear refusal. */
// SPDX-License-Identifier: Apache-2.0
#include "base/toml.h"
#include "config/import.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char *const words[] = {"one", "training.steps=3"};
    struct import im = {0};
    if (!import_script(&im, (const char *)bytes, len, "/input.sh", words, 2)) {
        struct text toml = {0};
        struct toml *root = NULL;
        import_write(&im, &toml);
        BUG_IF(toml_parse(toml.data, toml.len, "written", &root));
        toml_free(root);
        text_release(&toml);
    }
    import_release(&im);
    return 0;
}
