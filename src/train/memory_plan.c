// SPDX-License-Identifier: Apache-2.0
#include "train/memory_plan.h"

#include "base/log.h"

static const struct {
    const char *name, *text;
} kinds[MEMORY_COUNT] = {
#define X(name, text) [MEMORY_##name] = {#name, text},
    MEMORY_LIST(X)
#undef X
};

const char *memory_plan_name(enum memory_kind kind) { return kinds[kind].name; }
const char *memory_plan_text(enum memory_kind kind) { return kinds[kind].text; }

size_t memory_plan_total(const struct memory_plan *p)
{
    size_t sum = 0;
    for (int i = 0; i < MEMORY_COUNT; i++) sum += p->bytes[i];
    return sum;
}

void memory_plan_warn(size_t needed, size_t available)
{
    const double gib = 1 << 30;
    if (needed > available)
        log_line(LOG_WARN,
                 "not enough memory: %.2f GiB required, %.2f GiB available; the OOM killer may end "
                 "this run "
                 "(`llamero plan` shows memory by category)",
                 (double)needed / gib, (double)available / gib);
}
