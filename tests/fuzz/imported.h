/* imported.h -- for the fuzzers of imports: a successful import must write valid TOML. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/toml_parse.h"
#include "config/import/import.h"

/* `st`: the status of the import.  Releases `im`. */
static inline void imported_check(struct import *im, enum status st)
{
    if (!st) {
        struct text toml = {0};
        struct toml *root = NULL;
        import_write(im, &toml);
        BUG_IF(toml_parse(toml.data, toml.len, "written", &root));
        toml_free(root);
        text_release(&toml);
    }
    import_release(im);
}
