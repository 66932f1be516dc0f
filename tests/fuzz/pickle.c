/* pickle.c -- any bytes as a pickle: values, no more than there are bytes, or a clear refusal. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct pickle p;
    size_t used;
    int64_t integers[8];
    if (!pickle_parse(&p, bytes, len, "input", &used)) {
        BUG_IF(!p.root || used > len || p.num_values > len);
        BUG_IF(pickle_integers(p.root, 8, integers) > 8);
        const struct pickle_value *v = pickle_get(p.root, "a");
        BUG_IF(v && p.root->kind != PICKLE_IS_DICT);
    }
    pickle_release(&p);
    return 0;
}
