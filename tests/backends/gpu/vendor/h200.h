/* described.h -- an H200 that need not be there, for tests of what cuDNN plans. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

/* Its properties; the caller frees them. */
static inline char *described_h200(size_t *length)
{
    FILE *in = fopen("tests/backends/gpu/vendor/data/h200.json", "rb");
    char *json = heap(4096);
    CHECK(in);
    *length = fread(json, 1, 4095, in);
    fclose(in);
    return json;
}
