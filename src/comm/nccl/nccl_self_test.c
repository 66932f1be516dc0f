// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/library.h"
#include "comm/nccl/nccl.h"
#include "tensor/device.h"

enum { COUNT = 1000 };

enum status nccl_describe(struct text *out)
{
    int version = 0;
    TRY(nccl_load());
    if (ncclGetVersion(&version)) FAIL(COMM, NCCL_TITLE " does not report its version");
    text_addf(out, NCCL_TITLE " %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return STATUS_OK;
}

static enum status sum_in_place(struct communicator *c, float *x, struct queue *queue)
{
    const struct transfer sum = {TRANSFER_all_reduce, .x = x, .count = COUNT, .dtype = F32};
    struct side_stream_event done;
    enum status st = STATUS_OK;
    TRY(side_stream_event_open(&done));
    TRY_OUT(side_stream_wait_queue(&c->stream));
    TRY_OUT(communicator_issue(c, &sum, 0));
    TRY_OUT(side_stream_record(&c->stream, &done));
    TRY_OUT(side_stream_join(&c->stream, &done));
    TRY_OUT(queue_wait(queue));
out:
    side_stream_event_close(&done);
    return st;
}

static enum status check_sum(struct communicator *c, float *x, struct queue *queue)
{
    float values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = (float)i;
    TRY(queue_copy(queue, x, values, sizeof values));
    TRY(sum_in_place(c, x, queue));
    TRY(queue_copy(queue, values, x, sizeof values));
    for (int i = 0; i < COUNT; i++)
        if (values[i] < (float)i || values[i] > (float)i)
            FAIL(COMM, "an all-reduce of one rank changes element %d from %d to %g", i, i,
                 (double)values[i]);
    return STATUS_OK;
}

enum status nccl_self_test(struct queue *queue)
{
    struct communicator c = {.name = "self-test", .size = 1};
    struct communicator_init init = {.communicator = &c};
    struct arena memory = {0};
    enum status st = STATUS_OK;
    TRY(nccl_load());
    TRY(communicator_id(init.id));
    TRY_OUT(arena_init(&memory, COUNT * sizeof(float), queue_device_allocator(queue)));
    TRY_OUT(communicator_open(&init, 1, 0, queue));
    TRY_OUT(check_sum(&c, (float *)(void *)memory.base, queue));
out:
    if (st) communicator_abort(&c);
    communicator_close(&c);
    arena_release(&memory);
    return st;
}
