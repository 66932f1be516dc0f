// SPDX-License-Identifier: Apache-2.0
#include "train/memory.h"

static const struct {
    const char *name, *text;
} kinds[MEMORY_COUNT] = {
#define X(name, text) [MEMORY_##name] = {#name, text},
    MEMORY_LIST(X)
#undef X
};

const char *memory_name(enum memory_kind kind) { return kinds[kind].name; }
const char *memory_text(enum memory_kind kind) { return kinds[kind].text; }

size_t memory_total(const struct memory_plan *p)
{
    size_t sum = 0;
    for (int i = 0; i < MEMORY_COUNT; i++) sum += p->bytes[i];
    return sum;
}
