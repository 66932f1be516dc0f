/* motifs.c -- any bytes as a motif file must give IDs up to its separator, or a clean error. */
// SPDX-License-Identifier: Apache-2.0
#include "data/motifs.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct motifs *m;
    if (motifs_parse(&m, bytes, len, "input")) return 0;
    struct motif_session s = {
        .counts = bytes, .neurons = 1, .bins = len < 600 ? len : 600, .width = 3};
    struct text out = {0};
    motifs_encode(m, &s, &out);
    BUG_IF(out.len != motifs_length(m, &s) * sizeof(int32_t));
    for (size_t i = 0; i < out.len / sizeof(int32_t); i++) {
        int32_t id = ((const int32_t *)(const void *)out.data)[i];
        BUG_IF(id < 0 || id > motifs_separator(m));
    }
    text_release(&out);
    motifs_close(m);
    return 0;
}
