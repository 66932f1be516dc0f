// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"
#include "comm/nccl/nccl.h"
#include "tensor/device.h"

enum { COUNT = 100003 };

static bool is_in_place(enum transfer_kind kind)
{
    return kind != TRANSFER_send && kind != TRANSFER_shift && kind != TRANSFER_all_to_all &&
           kind != TRANSFER_reduce_scatter;
}

/* `from` and `to` are device buffers of COUNT elements.  A send needs its receive in one group. */
static enum status issue_kind(struct communicator *c, enum transfer_kind kind, float *from,
                              float *to)
{
    struct transfer t = {kind, F32, COUNT, .x = is_in_place(kind) ? to : from};
    struct transfer receive = {TRANSFER_receive, F32, COUNT, .x = to};
    const size_t part = COUNT;
    enum status st = STATUS_OK;
    t.own = to, t.sends = t.receives = &part;
    TRY(communicator_group_start());
    if (kind == TRANSFER_send) st = communicator_issue(c, &receive, 0);
    if (!st) st = communicator_issue(c, &t, 0);
    TRY(communicator_group_end(st));
    return STATUS_OK;
}

/* The sum over one rank, or what it sends itself, is what it had. */
static enum status check_kind(struct communicator *c, enum transfer_kind kind, float *device,
                              float *host)
{
    struct queue *queue = c->stream.queue;
    struct side_stream_event done;
    float *from = device, *to = device + COUNT;
    for (int i = 0; i < COUNT; i++) host[i] = (float)(i * ((int)kind + 1));
    TRY(queue_copy(queue, from, host, COUNT * sizeof *host));
    TRY(queue_zero(queue, to, COUNT * sizeof *host));
    if (is_in_place(kind)) TRY(queue_copy(queue, to, from, COUNT * sizeof *host));
    TRY(side_stream_event_open(&done));
    enum status st = side_stream_wait_queue(&c->stream);
    if (!st) st = issue_kind(c, kind, from, to);
    if (!st) st = side_stream_record(&c->stream, &done);
    if (!st) st = side_stream_join(&c->stream, &done);
    if (!st) st = side_stream_synchronize(&done);
    if (!st) st = communicator_async_error(c);
    side_stream_event_close(&done);
    TRY(st);
    TRY(queue_copy(queue, host, to, COUNT * sizeof *host));
    for (int i = 0; i < COUNT; i++)
        if (host[i] != (float)(i * ((int)kind + 1)))
            FAIL(COMM, "%s to itself: element %d is %g, expected %g", transfer_name(kind), i,
                 (double)host[i], (double)(i * ((int)kind + 1)));
    return STATUS_OK;
}

enum status nccl_self_test(struct queue *queue)
{
    struct communicator c = {.name = "self-test", .size = 1};
    struct communicator_init init = {.communicator = &c};
    struct communicator_opening opening = {.inits = &init, .count = 1, .queue = queue};
    struct arena device = {0}, host = {0};
    size_t bytes = COUNT * sizeof(float);
    enum status st = STATUS_OK;
    TRY(nccl_load());
    TRY(communicator_id(init.id));
    TRY_OUT(arena_init(&device, 2 * bytes, queue_device_allocator(queue)));
    TRY_OUT(arena_init(&host, bytes, NULL));
    TRY_OUT(communicator_prepare(&opening));
    TRY_OUT(communicator_open(&opening));
    for (enum transfer_kind kind = 0; kind < TRANSFER_COUNT; kind++)
        if (kind != TRANSFER_receive)
            TRY_OUT(check_kind(&c, kind, (float *)(void *)device.base, (float *)(void *)host.base));
out:
    if (st) communicator_cancel(&opening);
    (void)communicator_close(&c);
    arena_release(&host);
    arena_release(&device);
    return st;
}
