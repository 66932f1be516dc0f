// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"
#include "ops/rig.h"
#include "ops/update.h"

static enum status broken_cast(const struct cast *a, const struct cast_io *io, struct queue *queue)
{
    (void)a, (void)io, (void)queue;
    FAIL(DEVICE, "the broken cast");
}

TEST(ops_missing_names_an_empty_slot)
{
    struct ops some = ops_cpu_reference;
    CHECK(!ops_missing(&some));
    some.rmsnorm_backward = NULL;
    CHECK(!strcmp(ops_missing(&some), "rmsnorm_backward"));
}

TEST(op_call_returns_failures_and_adds_a_trace_span)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    struct ops broken = ops_cpu_reference;
    struct cast how = {.n = 4, .to = F32};
    struct cast_io io = {x, y};
    struct trace trace = {0};
    struct queue *queue = rig_queue();
    broken.cast = broken_cast;
    CHECK_STATUS(OK, cast(&ops_cpu_reference, &how, &io, queue));
    queue->trace = &trace;
    CHECK_STATUS(DEVICE, cast(&broken, &how, &io, queue));
    CHECK_STATUS(OK, cast(&ops_cpu_reference, &how, &io, queue));
    queue->trace = NULL;
    CHECK(trace.count == 1 && !strcmp(trace.spans[0].name, "cast"));
    CHECK(y[3] == 4);
    trace_release(&trace);
}
