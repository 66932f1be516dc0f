/* h200.h -- the properties of an H200, for which tests build cuDNN plans without a GPU. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/vendor/cudnn_load.h"
#include "test.h"

/* Opens cuDNN.  In its JSON format; the caller frees them. */
static inline char *h200_properties(size_t *length)
{
    FILE *in = fopen("tests/backends/gpu/vendor/data/h200.json", "rb");
    char *json = heap(4096);
    CHECK_STATUS(OK, cudnn_load());
    CHECK(in);
    *length = fread(json, 1, 4095, in);
    fclose(in);
    return json;
}
