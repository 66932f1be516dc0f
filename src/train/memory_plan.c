// SPDX-License-Identifier: Apache-2.0
#include "train/memory_plan.h"

#include "base/byte_size.h"
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

static size_t sum_of(const size_t bytes[MEMORY_COUNT])
{
    size_t sum = 0;
    for (int i = 0; i < MEMORY_COUNT; i++) sum += bytes[i];
    return sum;
}

size_t memory_plan_total(const struct memory_plan *p) { return sum_of(p->bytes); }
size_t memory_plan_host_total(const struct memory_plan *p) { return sum_of(p->host); }

void memory_plan_merge_host(struct memory_plan *p)
{
    for (int i = 0; i < MEMORY_COUNT; i++) p->bytes[i] += p->host[i], p->host[i] = 0;
}

void memory_plan_warn(size_t needed, size_t available)
{
    if (needed > available)
        log_line(LOG_WARN,
                 "not enough memory: %s required, %s available; the OOM killer may end this run "
                 "(`llamero plan` shows memory by category)",
                 byte_size_format((double)needed).text, byte_size_format((double)available).text);
}
