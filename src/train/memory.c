// SPDX-License-Identifier: Apache-2.0
#include "train/memory.h"

#include "base/log.h"

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

void memory_warn(size_t needed, size_t available)
{
    const double gib = 1 << 30;
    if (needed > available)
        log_line(
            LOG_WARN,
            "%.2f GiB of memory are needed and %.2f GiB are available: the system may end this "
            "run without a word; `llamero plan` says what takes them",
            (double)needed / gib, (double)available / gib);
}
