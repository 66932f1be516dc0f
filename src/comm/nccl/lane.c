// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/lane.h"

#include "backends/gpu/queue.h"

static int device_of(const struct queue *on) { return ((const struct gpu_queue *)on)->device; }

/* Before others: the device has little to do for a transfer, and who waits for it has much. */
static enum status make_stream(void **out)
{
    int least, most;
    gpu_stream stream;
    GPU_TRY(GPU_CALL(DeviceGetStreamPriorityRange)(&least, &most));
    GPU_TRY(GPU_CALL(StreamCreateWithPriority)(&stream, GPU_CALL(StreamNonBlocking), most));
    *out = stream;
    return STATUS_OK;
}

static enum status make_event(void **out)
{
    gpu_event event;
    GPU_TRY(GPU_CALL(EventCreateWithFlags)(&event, GPU_CALL(EventDisableTiming)));
    *out = event;
    return STATUS_OK;
}

static void drop_event(void **event)
{
    if (*event) (void)gpuEventDestroy((gpu_event)*event);
    *event = NULL;
}

enum status lane_open(struct lane *l, struct queue *on)
{
    *l = (struct lane){.on = on};
    TRY(make_stream(&l->stream));
    TRY(make_event(&l->ready));
    return STATUS_OK;
}

void lane_close(struct lane *l)
{
    drop_event(&l->ready);
    if (l->stream) (void)gpuStreamDestroy((gpu_stream)l->stream);
    l->stream = NULL;
}

enum status lane_mark_open(struct lane_mark *m)
{
    *m = (struct lane_mark){0};
    TRY(make_event(&m->event));
    return STATUS_OK;
}

void lane_mark_close(struct lane_mark *m) { drop_event(&m->event); }

enum status lane_follow(struct lane *l)
{
    gpu_event ready = (gpu_event)l->ready;
    GPU_TRY(gpuEventRecord(ready, gpu_stream_of(l->on)));
    GPU_TRY(gpuStreamWaitEvent((gpu_stream)l->stream, ready));
    return STATUS_OK;
}

enum status lane_set(struct lane *l, struct lane_mark *m)
{
    GPU_TRY(gpuEventRecord((gpu_event)m->event, (gpu_stream)l->stream));
    return STATUS_OK;
}

enum status lane_join(struct lane *l, const struct lane_mark *m)
{
    GPU_TRY(gpuStreamWaitEvent(gpu_stream_of(l->on), (gpu_event)m->event));
    return STATUS_OK;
}

enum status lane_wait(const struct lane_mark *m)
{
    GPU_TRY(gpuEventSynchronize((gpu_event)m->event));
    return STATUS_OK;
}

enum status lane_reached(const struct lane_mark *m, bool *reached)
{
    gpu_error error = GPU_CALL(EventQuery)((gpu_event)m->event);
    *reached = error == gpuSuccess;
    if (error == GPU_CALL(ErrorNotReady)) {
        (void)gpuGetLastError(); /* it is no failure of a later call */
        return STATUS_OK;
    }
    GPU_TRY(error);
    return STATUS_OK;
}

enum status lane_enter(struct queue *on)
{
    GPU_TRY(gpuSetDevice(device_of(on)));
    return STATUS_OK;
}

enum status lane_device(struct queue *on, char name[LANE_DEVICE_NAME])
{
    GPU_TRY(GPU_CALL(DeviceGetPCIBusId)(name, LANE_DEVICE_NAME, device_of(on)));
    return STATUS_OK;
}
