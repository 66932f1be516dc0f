/* runtime.h -- one set of names for what CUDA's and HIP's runtimes share.
 *
 * GPU_CUDA, GPU_HIP or GPU_EMULATED (32 or 64, the warp size) selects the runtime; without any of
 * them a file gets the emulator.  GPU_NAME names the room's external symbols: gpu_open with a real
 * runtime, gpu_emu32_open and gpu_emu64_open in tests, which link both emulated builds.
 * Threads  The current device and the last error belong to the calling thread: a thread other than
 *          the one that opened the queue calls gpuSetDevice first. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__cplusplus)
extern "C" {
#endif
#include "base/status.h"
#if defined(__cplusplus)
}
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* HIP's header has templates, so no file includes this one in extern "C": with any runtime such a
 * file does not compile. */
#if defined(__cplusplus)
template <int> struct gpu_runtime_included_in_extern_c;
#endif

#if defined(GPU_CUDA) || defined(GPU_HIP)
#define GPU_NAME(name) gpu_##name
#else
#if !defined(GPU_EMULATED)
#define GPU_EMULATED 32
#endif
#define GPU_NAME_JOIN(width, name) gpu_emu##width##_##name
#define GPU_NAME_OF(width, name)   GPU_NAME_JOIN(width, name)
#define GPU_NAME(name)             GPU_NAME_OF(GPU_EMULATED, name)
#endif

#if defined(GPU_CUDA)
#include <cuda_runtime.h>
#define GPU_CALL(name)      cuda##name
#define GPU_HOST_ALLOC      cudaHostAllocPortable
#define GPU_SHARED_SIZE     cudaFuncAttributeMaxDynamicSharedMemorySize
#define gpuErrorOutOfMemory cudaErrorMemoryAllocation
typedef cudaStream_t gpu_stream;
typedef cudaEvent_t gpu_event;
typedef cudaGraph_t gpu_graph;
typedef cudaGraphExec_t gpu_graph_exec;
typedef cudaError_t gpu_error;
typedef struct cudaDeviceProp gpu_properties;
#elif defined(GPU_HIP)
#include <hip/hip_runtime.h>
#define GPU_CALL(name)      hip##name
#define GPU_HOST_ALLOC      hipHostMallocPortable
#define GPU_SHARED_SIZE     hipFuncAttributeMaxDynamicSharedMemorySize
#define gpuErrorOutOfMemory hipErrorOutOfMemory
typedef hipStream_t gpu_stream;
typedef hipEvent_t gpu_event;
typedef hipGraph_t gpu_graph;
typedef hipGraphExec_t gpu_graph_exec;
typedef hipError_t gpu_error;
typedef hipDeviceProp_t gpu_properties;
#endif

/* gpuX is cudaX or hipX: cudaSetDevice, cudaMalloc, cudaMemcpyAsync, cudaStreamSynchronize,
 * cudaEventRecord, cudaHostAlloc, cudaFuncSetAttribute and so on. */
#if defined(GPU_CUDA) || defined(GPU_HIP)
#define gpuSuccess                        GPU_CALL(Success)
#define gpuGetDeviceCount                 GPU_CALL(GetDeviceCount)
#define gpuSetDevice                      GPU_CALL(SetDevice)
#define gpuMemGetInfo                     GPU_CALL(MemGetInfo)
#define gpuMalloc(out, size)              GPU_CALL(Malloc)((void **)(out), size)
#define gpuFree                           GPU_CALL(Free)
#define gpuStreamDestroy                  GPU_CALL(StreamDestroy)
#define gpuStreamSynchronize              GPU_CALL(StreamSynchronize)
#define gpuDeviceSynchronize              GPU_CALL(DeviceSynchronize)
#define gpuStreamWaitEvent(stream, event) GPU_CALL(StreamWaitEvent)(stream, event, 0)
#define gpuEventCreate                    GPU_CALL(EventCreate)
#define gpuEventDestroy                   GPU_CALL(EventDestroy)
#define gpuEventRecord                    GPU_CALL(EventRecord)
#define gpuEventSynchronize               GPU_CALL(EventSynchronize)
#define gpuEventElapsedTime               GPU_CALL(EventElapsedTime)
#define gpuMemsetAsync                    GPU_CALL(MemsetAsync)
/* The direction follows from the two pointers. */
#define gpuMemcpyAsync(to, from, size, stream)                                                     \
    GPU_CALL(MemcpyAsync)(to, from, size, GPU_CALL(MemcpyDefault), stream)
#define gpuStreamBeginCapture(stream)                                                              \
    GPU_CALL(StreamBeginCapture)(stream, GPU_CALL(StreamCaptureModeThreadLocal))
#define gpuStreamEndCapture              GPU_CALL(StreamEndCapture)
#define gpuGraphInstantiate(exec, graph) GPU_CALL(GraphInstantiateWithFlags)(exec, graph, 0)
#define gpuGraphDestroy                  GPU_CALL(GraphDestroy)
#define gpuGraphLaunch                   GPU_CALL(GraphLaunch)
#define gpuGraphExecDestroy              GPU_CALL(GraphExecDestroy)
#define gpuGetLastError                  GPU_CALL(GetLastError)
#define gpuGetErrorString                GPU_CALL(GetErrorString)
#else
#include "backends/gpu/emulator/emulator.h"
#define gpuSuccess            EMULATOR_SUCCESS
#define gpuErrorOutOfMemory   EMULATOR_OUT_OF_MEMORY
#define gpuGetDeviceCount     emulator_device_count
#define gpuSetDevice          emulator_set_device
#define gpuMemGetInfo         emulator_mem_info
#define gpuMalloc(out, size)  emulator_malloc((void **)(out), size)
#define gpuFree               emulator_free
#define gpuStreamCreate       emulator_stream_create
#define gpuStreamDestroy      emulator_stream_destroy
#define gpuStreamSynchronize  emulator_stream_synchronize
#define gpuDeviceSynchronize  emulator_device_synchronize
#define gpuStreamWaitEvent    emulator_event_wait
#define gpuEventCreate        emulator_event_create
#define gpuEventDestroy       emulator_event_destroy
#define gpuEventRecord        emulator_event_record
#define gpuEventSynchronize   emulator_event_synchronize
#define gpuEventElapsedTime   emulator_event_elapsed
#define gpuMemsetAsync        emulator_memset
#define gpuMemcpyAsync        emulator_memcpy
#define gpuStreamBeginCapture emulator_stream_begin_capture
#define gpuStreamEndCapture   emulator_stream_end_capture
#define gpuGraphInstantiate   emulator_graph_instantiate
#define gpuGraphDestroy       emulator_graph_destroy
#define gpuGraphLaunch        emulator_graph_launch
#define gpuGraphExecDestroy   emulator_graph_exec_destroy
#define gpuGetLastError       emulator_last_error
#define gpuGetErrorString     emulator_error_string
#endif

#if defined(GPU_CUDA) || defined(GPU_HIP)
/* Does not synchronize with the default stream. */
static inline gpu_error gpuStreamCreate(gpu_stream *out)
{
    return GPU_CALL(StreamCreateWithFlags)(out, GPU_CALL(StreamNonBlocking));
}
#endif

/* For ordering streams alone, which is cheaper. */
static inline gpu_error gpu_create_untimed_event(gpu_event *out)
{
#if defined(GPU_CUDA) || defined(GPU_HIP)
    return GPU_CALL(EventCreateWithFlags)(out, GPU_CALL(EventDisableTiming));
#else
    return gpuEventCreate(out);
#endif
}

/* Pinned host memory that the device accesses at the same address. */
static inline gpu_error gpuHostAlloc(void **out, size_t bytes)
{
#if defined(GPU_CUDA)
    return cudaHostAlloc(out, bytes, GPU_HOST_ALLOC);
#elif defined(GPU_HIP)
    return hipHostMalloc(out, bytes, GPU_HOST_ALLOC);
#else
    return emulator_host_alloc(out, bytes);
#endif
}

static inline gpu_error gpuFreeHost(void *memory)
{
#if defined(GPU_CUDA)
    return cudaFreeHost(memory);
#elif defined(GPU_HIP)
    return hipHostFree(memory);
#else
    return emulator_host_free(memory);
#endif
}

static inline gpu_error gpu_device_name(char *to, size_t bytes, int device)
{
#if defined(GPU_CUDA) || defined(GPU_HIP)
    gpu_properties properties;
    gpu_error error = GPU_CALL(GetDeviceProperties)(&properties, device);
    snprintf(to, bytes, "%s", error == gpuSuccess ? properties.name : "");
    return error;
#else
    emulator_device_name(to, bytes, device);
    return gpuSuccess;
#endif
}

/* NVIDIA's compute capability, 90 for 9.0; 0 for other devices. */
static inline gpu_error gpu_compute_capability(int *out, int device)
{
    *out = 0;
#if defined(GPU_CUDA)
    gpu_properties properties;
    gpu_error error = cudaGetDeviceProperties(&properties, device);
    if (error == gpuSuccess) *out = properties.major * 10 + properties.minor;
    return error;
#else
    (void)device;
#if !defined(GPU_HIP)
    *out = emulator_compute_capability();
#endif
    return gpuSuccess;
#endif
}

/* AMD's name of the architecture, such as gfx90a:sramecc+:xnack-; empty for other devices. */
static inline gpu_error gpu_architecture(char *to, size_t bytes, int device)
{
    *to = 0;
#if defined(GPU_HIP)
    gpu_properties properties;
    gpu_error error = hipGetDeviceProperties(&properties, device);
    if (error == gpuSuccess) snprintf(to, bytes, "%s", properties.gcnArchName);
    return error;
#else
    (void)bytes, (void)device;
    return gpuSuccess;
#endif
}

static inline gpu_error gpu_multiprocessors(int *out, int device)
{
#if defined(GPU_CUDA) || defined(GPU_HIP)
    gpu_properties properties;
    gpu_error error = GPU_CALL(GetDeviceProperties)(&properties, device);
    *out = error == gpuSuccess ? properties.multiProcessorCount : 0;
    return error;
#else
    (void)device;
    *out = 16;
    return gpuSuccess;
#endif
}

/* Whether the pointer is to device memory; false for host memory, pinned or not. */
static inline bool gpu_is_device_memory(const void *pointer)
{
#if defined(GPU_CUDA)
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, pointer)) return cudaGetLastError(), false;
    return attributes.type == cudaMemoryTypeDevice;
#elif defined(GPU_HIP)
    hipPointerAttribute_t attributes;
    if (hipPointerGetAttributes(&attributes, pointer)) return (void)hipGetLastError(), false;
#if HIP_VERSION >= 60000000
    return attributes.type == hipMemoryTypeDevice;
#else
    return attributes.memoryType == hipMemoryTypeDevice;
#endif
#else
    return emulator_is_device_memory(pointer);
#endif
}

/* DEVICE: there is no driver, or it is older than this program's toolkit, for which the runtime has
 * the same error string. */
static inline enum status gpu_check_driver(void)
{
#if defined(GPU_CUDA)
    int driver = 0, runtime = 0; /* 12040 for 12.4 */
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (!driver) FAIL(DEVICE, "no NVIDIA driver found (libcuda.so.1)");
    if (driver / 1000 < runtime / 1000)
        FAIL(DEVICE,
             "the NVIDIA driver supports CUDA %d.%d, this program requires %d.0: update the "
             "driver, or rebuild with an older toolkit",
             driver / 1000, driver / 10 % 100, runtime / 1000);
#endif
    return STATUS_OK;
}

/* Fails with DEVICE and the runtime's error string. */
#define GPU_TRY(call)                                                                              \
    do {                                                                                           \
        gpu_error error_ = (call);                                                                 \
        if (error_ != gpuSuccess) FAIL(DEVICE, "GPU: %s: %s", #call, gpuGetErrorString(error_));   \
    } while (0)
