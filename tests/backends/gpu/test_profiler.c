// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/profiler.h"

#include "test.h"

#include "backends/gpu/gpu.h"
#include "tensor/trace.h"

TEST(spans_of_a_gpu_queue_nest_in_its_trace_without_a_profiler)
{
    struct queue *queue;
    struct trace trace = {0};
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    queue->trace = &trace;
    double outer = queue_begin_span(queue, "optimizer"), inner = queue_begin_span(queue, "adamw");
    queue_end_span(queue, "adamw", inner);
    queue_end_span(queue, "optimizer", outer);
    CHECK(trace.count == 2 && !strcmp(trace.spans[0].name, "adamw"));
    CHECK(trace.spans[1].begin_s <= trace.spans[0].begin_s);
    queue->trace = NULL;
    trace_release(&trace);
    gpu_emu32_close(queue);
}
