// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/side_stream.h"

#include "backends/gpu/queue.h"

static int device_of(const struct queue *queue)
{
    return ((const struct gpu_queue *)queue)->device;
}

/* High priority: a transfer needs little of the device, and much waits for it.  On AMD GPUs it may
 * have no effect (docs/gpu-amd.md). */
static enum status create_stream(void **out)
{
    int least, most;
    gpu_stream stream;
    GPU_TRY(GPU_CALL(DeviceGetStreamPriorityRange)(&least, &most));
    GPU_TRY(GPU_CALL(StreamCreateWithPriority)(&stream, GPU_CALL(StreamNonBlocking), most));
    *out = stream;
    return STATUS_OK;
}

static enum status create_event(void **out)
{
    gpu_event event;
    GPU_TRY(GPU_CALL(EventCreateWithFlags)(&event, GPU_CALL(EventDisableTiming)));
    *out = event;
    return STATUS_OK;
}

static void destroy_event(void **event)
{
    if (*event) (void)gpuEventDestroy((gpu_event)*event);
    *event = NULL;
}

enum status side_stream_open(struct side_stream *s, struct queue *queue)
{
    *s = (struct side_stream){.queue = queue};
    TRY(create_stream(&s->handle));
    TRY(create_event(&s->queue_event));
    return STATUS_OK;
}

void side_stream_use_queue(struct side_stream *s, struct queue *queue)
{
    *s = (struct side_stream){.queue = queue, .handle = gpu_stream_of(queue), .is_queue = true};
}

void side_stream_close(struct side_stream *s)
{
    destroy_event(&s->queue_event);
    if (s->handle && !s->is_queue) (void)gpuStreamDestroy((gpu_stream)s->handle);
    s->handle = NULL;
}

enum status side_stream_event_open(struct side_stream_event *e)
{
    *e = (struct side_stream_event){0};
    TRY(create_event(&e->handle));
    return STATUS_OK;
}

void side_stream_event_close(struct side_stream_event *e) { destroy_event(&e->handle); }

enum status side_stream_wait_queue(struct side_stream *s)
{
    gpu_event event = (gpu_event)s->queue_event;
    if (s->is_queue) return STATUS_OK;
    GPU_TRY(gpuEventRecord(event, gpu_stream_of(s->queue)));
    GPU_TRY(gpuStreamWaitEvent((gpu_stream)s->handle, event));
    return STATUS_OK;
}

enum status side_stream_record(struct side_stream *s, struct side_stream_event *e)
{
    GPU_TRY(gpuEventRecord((gpu_event)e->handle, (gpu_stream)s->handle));
    return STATUS_OK;
}

enum status side_stream_join(struct side_stream *s, const struct side_stream_event *e)
{
    GPU_TRY(gpuStreamWaitEvent(gpu_stream_of(s->queue), (gpu_event)e->handle));
    return STATUS_OK;
}

enum status side_stream_synchronize(const struct side_stream_event *e)
{
    GPU_TRY(gpuEventSynchronize((gpu_event)e->handle));
    return STATUS_OK;
}

enum status side_stream_query(const struct side_stream_event *e, bool *is_reached)
{
    gpu_error error = GPU_CALL(EventQuery)((gpu_event)e->handle);
    *is_reached = error == gpuSuccess;
    if (error == GPU_CALL(ErrorNotReady)) {
        (void)gpuGetLastError(); /* or a later call would report it */
        return STATUS_OK;
    }
    GPU_TRY(error);
    return STATUS_OK;
}

enum status side_stream_set_device(struct queue *queue)
{
    GPU_TRY(gpuSetDevice(device_of(queue)));
    return STATUS_OK;
}

enum status side_stream_device_id(struct queue *queue, char id[SIDE_STREAM_DEVICE_ID_BYTES])
{
    GPU_TRY(GPU_CALL(DeviceGetPCIBusId)(id, SIDE_STREAM_DEVICE_ID_BYTES, device_of(queue)));
    return STATUS_OK;
}
