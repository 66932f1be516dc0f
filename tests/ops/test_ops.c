// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"
#include "ops/rig.h"
#include "ops/update.h"

static enum status other_cast(const struct cast *a, const struct cast_io *io, struct queue *on)
{
    (void)a, (void)io, (void)on;
    FAIL(DEVICE, "the other cast");
}

TEST(an_overlay_replaces_the_slots_it_fills_and_keeps_the_others)
{
    struct ops over = {.backend = "other", .cast = other_cast};
    struct ops both = ops_overlay(ops_cpu_reference, &over);
    CHECK(both.cast == other_cast && !strcmp(both.backend, "other"));
    CHECK(both.rope == ops_cpu_reference.rope && both.adamw == ops_cpu_reference.adamw);
}

TEST(an_empty_slot_is_named)
{
    struct ops some = ops_cpu_reference;
    CHECK(!ops_missing(&some));
    some.rmsnorm_backward = NULL;
    CHECK(!strcmp(ops_missing(&some), "rmsnorm_backward"));
}

TEST(a_call_passes_its_failure_up_and_a_traced_one_leaves_a_span)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    struct ops broken = ops_overlay(ops_cpu_reference, &(struct ops){.cast = other_cast});
    struct cast how = {.n = 4, .to = F32};
    struct cast_io io = {x, y};
    struct trace trace = {0};
    struct queue *on = rig_queue();
    CHECK_STATUS(OK, cast(&ops_cpu_reference, &how, &io, on));
    on->trace = &trace;
    CHECK_STATUS(DEVICE, cast(&broken, &how, &io, on));
    CHECK_STATUS(OK, cast(&ops_cpu_reference, &how, &io, on));
    on->trace = NULL;
    CHECK(trace.count == 1 && !strcmp(trace.spans[0].name, "cast"));
    CHECK(y[3] == 4);
    trace_release(&trace);
}
