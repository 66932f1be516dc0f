// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"

#include "backends/gpu/gemm.h"
#include "backends/gpu/gpu.h"
#include "base/text.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

static enum status own_take(size_t size, void **out)
{
    size_t available = 0, total = 0;
    void *at;
    gpu_error error = gpuMalloc(&at, size);
    if (error != gpuSuccess) {
        (void)gpuGetLastError();
        (void)gpuMemGetInfo(&available, &total);
        FAIL(MEMORY, "the GPU has no %.2f GiB for this run, %.2f GiB of its %.2f are free: %s",
             (double)size / (1 << 30), (double)available / (1 << 30), (double)total / (1 << 30),
             gpuGetErrorString(error));
    }
    error = gpuMemsetAsync(at, 0, size, NULL);
    if (error == gpuSuccess) error = gpuStreamSynchronize(NULL);
    if (error != gpuSuccess) {
        (void)gpuFree(at);
        FAIL(DEVICE, "the GPU does not zero %zu bytes: %s", size, gpuGetErrorString(error));
    }
    *out = at;
    return STATUS_OK;
}

static void own_give(void *at, size_t size)
{
    (void)size;
    (void)gpuFree(at);
}

static enum status shared_take(size_t size, void **out)
{
    gpu_error error = gpuHostAlloc(out, size);
    if (error != gpuSuccess) {
        (void)gpuGetLastError();
        FAIL(MEMORY, "the system has no %.2f GiB that the GPU may reach: %s",
             (double)size / (1 << 30), gpuGetErrorString(error));
    }
    memset(*out, 0, size);
    return STATUS_OK;
}

static void shared_give(void *at, size_t size)
{
    (void)size;
    (void)gpuFreeHost(at);
}

static enum status wait_for(struct queue *on)
{
    GPU_TRY(gpuStreamSynchronize(gpu_stream_of(on)));
    return STATUS_OK;
}

static enum status copy(struct queue *on, void *to, const void *from, size_t bytes)
{
    GPU_TRY(gpuMemcpyAsync(to, from, bytes, gpu_stream_of(on)));
    return gpu_is_device(to) && gpu_is_device(from) ? STATUS_OK : wait_for(on);
}

static enum status zero(struct queue *on, void *x, size_t bytes)
{
    GPU_TRY(gpuMemsetAsync(x, 0, bytes, gpu_stream_of(on)));
    return STATUS_OK;
}

static enum status fill(struct queue *on, size_t *bytes, size_t *used)
{
    size_t available;
    (void)on;
    GPU_TRY(gpuMemGetInfo(&available, bytes));
    *used = *bytes - available;
    return STATUS_OK;
}

static const struct device device = {
    .own = {own_take, own_give},
    .shared = {shared_take, shared_give},
    .copy = copy,
    .zero = zero,
    .wait = wait_for,
    .fill = fill,
};

enum status GPU_NAME(count)(int *count)
{
    *count = 0;
    GPU_TRY(gpuGetDeviceCount(count));
    return STATUS_OK;
}

enum status GPU_NAME(describe)(int index, struct gpu_description *out)
{
    *out = (struct gpu_description){0};
    GPU_TRY(gpuSetDevice(index));
    GPU_TRY(gpuMemGetInfo(&out->free_bytes, &out->bytes));
    GPU_TRY(gpu_device_name(out->name, sizeof out->name, index));
    return STATUS_OK;
}

enum status GPU_NAME(open)(struct queue **out, int index)
{
    struct gpu_queue *q = heap(sizeof *q);
    *out = NULL;
    *q = (struct gpu_queue){.base = {.device = &device, .num_threads = 1}, .device = index};
    q->base.scratch.memory = &device.own;
    gpu_error error = gpuSetDevice(index);
    if (error == gpuSuccess) error = gpu_has_eight_bits(&q->eight_bits, index);
    if (error == gpuSuccess) error = gpuStreamCreate(&q->stream);
    if (error != gpuSuccess) {
        free(q);
        FAIL(DEVICE, "GPU %d cannot be used: %s", index, gpuGetErrorString(error));
    }
    *out = &q->base;
    return STATUS_OK;
}

void GPU_NAME(tune)(struct queue *on, const char *path) { GPU_NAME(gemm_tune)(on, path); }

void GPU_NAME(any_order)(struct queue *on, bool allowed)
{
    ((struct gpu_queue *)on)->any_order = allowed;
}

void GPU_NAME(close)(struct queue *on)
{
    if (!on) return;
    struct gpu_queue *q = (struct gpu_queue *)on;
    (void)gpuStreamSynchronize(q->stream);
    GPU_NAME(gemm_close)(on);
    GPU_NAME(attention_close)(q);
    arena_release(&on->scratch);
    (void)gpuStreamDestroy(q->stream);
    free(q);
}
