// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/matcher.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

void matcher_release(struct matcher *m)
{
    for (int i = 0; m->strings.count && i < 256; i++) free(m->lengths[i]);
    vocabulary_release(&m->strings);
    *m = (struct matcher){0};
}

static void insert_length(uint16_t **lengths, uint16_t len)
{
    size_t count = 0, at = 0;
    while (*lengths && (*lengths)[count]) count++;
    while (at < count && (*lengths)[at] > len) at++;
    if (at < count && (*lengths)[at] == len) return;
    *lengths = heap_grow(*lengths, count + 2, sizeof **lengths);
    (*lengths)[count + 1] = 0;
    memmove(*lengths + at + 1, *lengths + at, (count - at) * sizeof **lengths);
    (*lengths)[at] = len;
}

enum status matcher_add(struct matcher *m, const void *bytes, size_t len, int32_t id)
{
    if (len > MATCHER_MAX_BYTES)
        FAIL(UNSUPPORTED, "%zu bytes; tokens that are matched in text have at most %d", len,
             MATCHER_MAX_BYTES);
    TRY(vocabulary_add(&m->strings, bytes, len, id));
    insert_length(&m->lengths[*(const unsigned char *)bytes], (uint16_t)len);
    return STATUS_OK;
}

int32_t matcher_find(const struct matcher *m, const unsigned char *bytes, size_t left, size_t *len)
{
    const uint16_t *lengths = left ? m->lengths[bytes[0]] : NULL;
    for (; lengths && *lengths; lengths++) {
        if (*lengths > left) continue;
        int32_t id = vocabulary_find(&m->strings, bytes, *lengths);
        *len = *lengths;
        if (id >= 0) return id;
    }
    return -1;
}
