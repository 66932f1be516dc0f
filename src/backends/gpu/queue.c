// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"

#include "backends/gpu/gemm.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/profiler.h"
#include "backends/gpu/vendor_attention.h"
#include "base/byte_size.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static enum status device_alloc(size_t size, void **out)
{
    size_t available = 0, total = 0;
    void *memory;
    gpu_error error = gpuMalloc(&memory, size);
    if (error != gpuSuccess) {
        (void)gpuGetLastError();
        if (error != gpuErrorOutOfMemory)
            FAIL(DEVICE, "GPU: allocating %s: %s", byte_size_format((double)size).text,
                 gpuGetErrorString(error));
        (void)gpuMemGetInfo(&available, &total);
        FAIL(MEMORY, "the GPU is out of memory: %s required, %s of %s free: %s",
             byte_size_format((double)size).text, byte_size_format((double)available).text,
             byte_size_format((double)total).text, gpuGetErrorString(error));
    }
    error = gpuMemsetAsync(memory, 0, size, NULL);
    if (error == gpuSuccess) error = gpuStreamSynchronize(NULL);
    if (error != gpuSuccess) {
        (void)gpuFree(memory);
        FAIL(DEVICE, "the GPU cannot zero %s: %s", byte_size_format((double)size).text,
             gpuGetErrorString(error));
    }
    *out = memory;
    return STATUS_OK;
}

static void device_free(void *memory, size_t size)
{
    (void)size;
    (void)gpuFree(memory);
}

enum { ZERO_CHUNK = 4 << 20 }; /* bytes that a thread zeroes at a time */

static void zero_host(void *x, size_t bytes)
{
#pragma omp parallel for schedule(static) if (bytes > ZERO_CHUNK)
    for (size_t at = 0; at < bytes; at += ZERO_CHUNK)
        memset((char *)x + at, 0, bytes - at < ZERO_CHUNK ? bytes - at : ZERO_CHUNK);
}

static enum status pinned_alloc(size_t size, void **out)
{
    double begin_s = clock_monotonic_s();
    gpu_error error = gpuHostAlloc(out, size);
    double allocated_s = clock_monotonic_s();
    if (error != gpuSuccess) {
        (void)gpuGetLastError();
        if (error != gpuErrorOutOfMemory)
            FAIL(DEVICE, "GPU: allocating %s of pinned host memory: %s",
                 byte_size_format((double)size).text, gpuGetErrorString(error));
        FAIL(MEMORY, "cannot allocate %s of pinned host memory: %s",
             byte_size_format((double)size).text, gpuGetErrorString(error));
    }
    zero_host(*out, size);
    double end_s = clock_monotonic_s();
    if (end_s - begin_s > 1)
        log_line(LOG_INFO, "pinned %s of host memory in %.1f s, zeroed it in %.1f s",
                 byte_size_format((double)size).text, allocated_s - begin_s, end_s - allocated_s);
    return STATUS_OK;
}

static void pinned_free(void *memory, size_t size)
{
    (void)size;
    (void)gpuFreeHost(memory);
}

static enum status synchronize(struct queue *queue)
{
    GPU_TRY(gpuStreamSynchronize(gpu_stream_of(queue)));
    return STATUS_OK;
}

static enum status copy_memory(struct queue *queue, void *to, const void *from, size_t bytes)
{
    GPU_TRY(gpuMemcpyAsync(to, from, bytes, gpu_stream_of(queue)));
    return gpu_is_device_memory(to) && gpu_is_device_memory(from) ? STATUS_OK : synchronize(queue);
}

static enum status zero_memory(struct queue *queue, void *x, size_t bytes)
{
    if (!gpu_is_device_memory(x)) { /* offloaded state, in pinned memory */
        TRY(synchronize(queue));
        zero_host(x, bytes);
        return STATUS_OK;
    }
    GPU_TRY(gpuMemsetAsync(x, 0, bytes, gpu_stream_of(queue)));
    return STATUS_OK;
}

static enum status memory_usage(struct queue *queue, size_t *bytes, size_t *used)
{
    size_t available;
    (void)queue;
    GPU_TRY(gpuMemGetInfo(&available, bytes));
    *used = *bytes - available;
    return STATUS_OK;
}

static void push_range(struct queue *queue, const char *name)
{
    if (((const struct gpu_queue *)queue)->has_ranges) profiler_push(name);
}

static void pop_range(struct queue *queue)
{
    if (((const struct gpu_queue *)queue)->has_ranges) profiler_pop();
}

struct queue_graph {
    gpu_graph_exec exec;
};

/* Thread-local: calls of other threads, such as a checkpoint's copies, do not matter. */
static enum status begin_capture(struct queue *queue)
{
    GPU_TRY(gpuStreamBeginCapture(gpu_stream_of(queue)));
    return STATUS_OK;
}

static enum status end_capture(struct queue *queue, struct queue_graph **out)
{
    gpu_graph graph = NULL;
    gpu_graph_exec exec;
    *out = NULL;
    gpu_error error = gpuStreamEndCapture(gpu_stream_of(queue), &graph);
    if (error == gpuSuccess) error = gpuGraphInstantiate(&exec, graph);
    if (graph) (void)gpuGraphDestroy(graph);
    (void)gpuGetLastError(); /* of what was not permitted: the next launch would report it */
    if (error != gpuSuccess)
        FAIL(DEVICE, "GPU: cannot record a graph: %s", gpuGetErrorString(error));
    *out = heap(sizeof **out);
    **out = (struct queue_graph){exec};
    return STATUS_OK;
}

static enum status launch_graph(struct queue *queue, const struct queue_graph *graph)
{
    GPU_TRY(gpuGraphLaunch(graph->exec, gpu_stream_of(queue)));
    return STATUS_OK;
}

static void free_graph(struct queue *queue, struct queue_graph *graph)
{
    (void)gpuStreamSynchronize(gpu_stream_of(queue));
    (void)gpuGraphExecDestroy(graph->exec);
    free(graph);
}

/* The stream, which is created when it is first used. */
static enum status find_stream(struct queue *queue, enum copy_stream stream, gpu_stream *out)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    if (stream == STREAM_QUEUE) {
        *out = q->stream;
        return STATUS_OK;
    }
    if (!q->copies[stream]) GPU_TRY(gpuStreamCreate(&q->copies[stream]));
    *out = q->copies[stream];
    return STATUS_OK;
}

static enum status copy_on(struct queue *queue, enum copy_stream stream, void *to, const void *from,
                           size_t bytes)
{
    gpu_stream s;
    TRY(find_stream(queue, stream, &s));
    GPU_TRY(gpuMemcpyAsync(to, from, bytes, s));
    return STATUS_OK;
}

static enum status record_event(struct queue *queue, enum copy_stream stream, struct copy_event *e)
{
    gpu_stream s;
    gpu_event event = (gpu_event)e->handle;
    TRY(find_stream(queue, stream, &s));
    if (!event) GPU_TRY(gpu_create_untimed_event(&event));
    e->handle = event;
    GPU_TRY(gpuEventRecord(event, s));
    return STATUS_OK;
}

static enum status wait_event(struct queue *queue, enum copy_stream stream,
                              const struct copy_event *e)
{
    gpu_stream s;
    TRY(find_stream(queue, stream, &s));
    GPU_TRY(gpuStreamWaitEvent(s, (gpu_event)e->handle));
    return STATUS_OK;
}

static enum status synchronize_event(struct queue *queue, const struct copy_event *e)
{
    (void)queue;
    GPU_TRY(gpuEventSynchronize((gpu_event)e->handle));
    return STATUS_OK;
}

static void release_event(struct queue *queue, struct copy_event *e)
{
    (void)queue;
    (void)gpuEventDestroy((gpu_event)e->handle);
}

static const struct device device = {
    .own = {device_alloc, device_free},
    .shared = {pinned_alloc, pinned_free},
    .copy = copy_memory,
    .zero = zero_memory,
    .wait = synchronize,
    .push_range = push_range,
    .pop_range = pop_range,
/* ROCm 7.2.0 to 7.2.3 may replay garbage on an MI300X (github.com/ROCm/clr/issues/279). */
#if defined(GPU_CUDA) || GPU_EMULATED == 32
    .graphs_by_default = true,
#endif
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .launch_graph = launch_graph,
    .free_graph = free_graph,
    .memory_info = memory_usage,
    .copy_on = copy_on,
    .record_event = record_event,
    .wait_event = wait_event,
    .synchronize_event = synchronize_event,
    .release_event = release_event,
};

enum status GPU_NAME(count)(int *count)
{
    *count = 0;
    TRY(gpu_check_driver());
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

enum status GPU_NAME(bus_id)(int index, char id[GPU_BUS_ID_BYTES])
{
    id[0] = 0;
#if defined(GPU_CUDA) || defined(GPU_HIP)
    GPU_TRY(GPU_CALL(DeviceGetPCIBusId)(id, GPU_BUS_ID_BYTES, index));
#else
    (void)index;
#endif
    return STATUS_OK;
}

/* The kernels' mma.sync on bf16 and cp.async require 8.0.  The matrix units multiply the E4M3 and
 * E5M2 of ops/float8.h since 8.9; those of gfx942 implement the FNUZ variants. */
enum { MIN_CAPABILITY = 80, NATIVE_FP8_CAPABILITY = 89 };

static enum status check_capability(int capability, int index)
{
    if (capability && capability < MIN_CAPABILITY)
        FAIL(UNSUPPORTED, "GPU %d has compute capability %d.%d: 8.0 (A100) or later is required",
             index, capability / 10, capability % 10);
    return STATUS_OK;
}

bool GPU_NAME(lacks_driver_for_ptx)(int capability, int driver, int toolkit)
{
    int major = capability / 10;
    bool has_binary = major == 8 || major == 9 || (major == 10 && toolkit >= 12080);
    return capability && !has_binary && driver / 10 < toolkit / 10;
}

static void warn_of_ptx(int capability, int index)
{
    int driver = 0, toolkit = 0;
#if defined(GPU_CUDA)
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&toolkit);
#endif
    if (!GPU_NAME(lacks_driver_for_ptx)(capability, driver, toolkit)) return;
    log_line(LOG_WARN,
             "GPU %d has compute capability %d.%d, for which this program has only PTX of CUDA "
             "%d.%d, unless it was built with CUDA_ARCH, and the driver compiles PTX of up to CUDA "
             "%d.%d: if kernels fail, update the driver, or rebuild with its version of CUDA",
             index, capability / 10, capability % 10, toolkit / 1000, toolkit / 10 % 100,
             driver / 1000, driver / 10 % 100);
}

/* Whether code for a target such as "gfx90a" or "gfx942:xnack-", which ends at a character of an
 * option, runs on an architecture: code that says nothing of a feature runs with and without it. */
static bool runs_on(const char *target, const char *architecture)
{
    size_t len = strcspn(architecture, ":"), end = strcspn(target, ", \t");
    const char *has = strstr(architecture, ":xnack"), *needs = strstr(target, ":xnack");
    if (strncmp(target, architecture, len) || isalnum((unsigned char)target[len])) return false;
    if (!has || !needs || needs >= target + end) return true;
    return has[strlen(":xnack")] == needs[strlen(":xnack")];
}

bool GPU_NAME(has_code)(const char *flags, const char *architecture)
{
    const char *at = strstr(flags, "gfx");
    if (!architecture[0] || !at || strstr(flags, "native") || strstr(flags, "-generic"))
        return true;
    for (; at; at = strstr(at + 3, "gfx"))
        if (runs_on(at, architecture)) return true;
    return false;
}

/* The flags with which hipcc compiled the kernels. */
#if !defined(GPU_ARCH)
#define GPU_ARCH ""
#endif

/* The architectures whose matrix instructions the kernels use (kernels/tile.h). */
static bool is_supported(const char *architecture)
{
    static const char *const names[] = {"gfx90a", "gfx942", "gfx950"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (runs_on(names[i], architecture)) return true;
    return false;
}

enum status GPU_NAME(check_architecture)(const char *flags, const char *architecture, int index)
{
    if (GPU_NAME(has_code)(flags, architecture)) return STATUS_OK;
    if (!is_supported(architecture))
        FAIL(
            UNSUPPORTED,
            "GPU %d is a %s, which is not supported: use gfx90a, gfx942 or gfx950 (MI200 series or "
            "later), or device.kind = \"cpu\"",
            index, architecture);
    FAIL(UNSUPPORTED,
         "GPU %d is a %s, for which this program has no code: rebuild it with "
         "HIP_ARCH=--offload-arch=%.*s; it was built with %s",
         index, architecture, (int)strcspn(architecture, ":"), architecture, flags);
}

enum status GPU_NAME(open)(struct queue **out, int index)
{
    int capability = 0;
    char architecture[256] = "";
    struct gpu_queue *q = heap(sizeof *q);
    *out = NULL;
    *q = (struct gpu_queue){.base = {.device = &device, .num_threads = 1}, .device = index};
    q->base.scratch.allocator = &device.own;
    gpu_error error = gpuSetDevice(index);
    if (error == gpuSuccess) error = gpu_compute_capability(&capability, index);
    if (error == gpuSuccess) error = gpu_architecture(architecture, sizeof architecture, index);
    enum status st = check_capability(capability, index);
    if (!st) st = GPU_NAME(check_architecture)(GPU_ARCH, architecture, index);
    if (error == gpuSuccess && !st) error = gpuStreamCreate(&q->stream);
    if (error != gpuSuccess || st) free(q);
    if (error != gpuSuccess)
        FAIL(DEVICE, "GPU %d cannot be used: %s", index, gpuGetErrorString(error));
    TRY(st);
    warn_of_ptx(capability, index);
    q->has_ranges = profiler_open();
    q->native_fp8 = capability >= NATIVE_FP8_CAPABILITY;
    *out = &q->base;
    return STATUS_OK;
}

void GPU_NAME(tune)(struct queue *queue, const struct tuning_files *files)
{
    GPU_NAME(gemm_tune)(queue, files);
}

void GPU_NAME(leave_multiprocessors)(struct queue *queue, int count)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    int all;
    if (gpu_multiprocessors(&all, q->device) == gpuSuccess && all > count)
        q->gemm_multiprocessors = all - count;
}

void GPU_NAME(allow_nondeterministic)(struct queue *queue, bool allowed)
{
    ((struct gpu_queue *)queue)->nondeterministic = allowed;
}

void GPU_NAME(limit_attention)(struct queue *queue, size_t bytes)
{
    ((struct gpu_queue *)queue)->attention_bytes = bytes;
}

enum status GPU_NAME(check_attention)(struct queue *queue)
{
    TRY(GPU_NAME(vendor_attention_check)(queue));
    return STATUS_OK;
}

enum status GPU_NAME(library)(enum gpu_library which, struct text *out)
{
    if (which == GPU_LIBRARY_GEMM)
        TRY(GPU_NAME(gemm_library)(out));
    else
        TRY(GPU_NAME(vendor_attention_library)(out));
    return STATUS_OK;
}

void GPU_NAME(close)(struct queue *queue)
{
    if (!queue) return;
    struct gpu_queue *q = (struct gpu_queue *)queue;
    (void)gpuStreamSynchronize(q->stream);
    for (int i = 0; i < STREAM_COUNT; i++)
        if (q->copies[i]) (void)gpuStreamDestroy(q->copies[i]);
    GPU_NAME(gemm_close)(queue);
    GPU_NAME(vendor_attention_close)(queue);
    arena_release(&queue->scratch);
    (void)gpuStreamDestroy(q->stream);
    free(q);
}
