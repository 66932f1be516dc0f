/* h200.h -- the properties of an H200, for which tests build cuDNN plans without a GPU. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/vendor/cudnn_attention.h"
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

/* The same with this compute capability (900: its own). */
static inline char *h200_with_capability(int capability, size_t *length)
{
    static const char key[] = "\"deviceVer\": ", own[] = "900";
    char *json = h200_properties(length), *at;
    struct text changed = {0};
    CHECK((at = strstr(json, key)));
    at += strlen(key);
    CHECK(!strncmp(at, own, strlen(own)));
    text_addf(&changed, "%.*s%d%s", (int)(at - json), json, capability, at + strlen(own));
    free(json);
    *length = changed.len;
    return changed.data;
}

/* Earlier versions exclude a deterministic backward on Blackwell. */
static inline void skip_before_cudnn_9_18_1(void)
{
    struct text library = {0};
    int major, minor, patch;
    CHECK_STATUS(OK, cudnn_attention_library(&library));
    CHECK(sscanf(library.data, "cuDNN %d.%d.%d", &major, &minor, &patch) == 3);
    text_release(&library);
    if (major == 9 && 100 * minor + patch < 1801) skip();
}
