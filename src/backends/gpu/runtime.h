/* runtime.h -- one name for what CUDA's and HIP's runtimes have in common.
 *
 * GPU_CUDA, GPU_HIP or GPU_EMULATED (the width of a wave) says which it is; a reader of this header
 * alone gets the emulator.  Whatever this room shows to others is named by GPU_NAME: gpu_open, or
 * gpu_emu32_open and gpu_emu64_open where it is compiled for the tests.
 * Threads  The current device, and the last error, are of the calling thread: a thread that did not
 *          open the queue calls gpuSetDevice first. */
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
#define GPU_CALL(name)  cuda##name
#define GPU_HOST_ALLOC  cudaHostAllocPortable
#define GPU_SHARED_SIZE cudaFuncAttributeMaxDynamicSharedMemorySize
typedef cudaStream_t gpu_stream;
typedef cudaEvent_t gpu_event;
typedef cudaError_t gpu_error;
typedef struct cudaDeviceProp gpu_properties;
#elif defined(GPU_HIP)
#include <hip/hip_runtime.h>
#define GPU_CALL(name)  hip##name
#define GPU_HOST_ALLOC  hipHostMallocPortable
#define GPU_SHARED_SIZE hipFuncAttributeMaxDynamicSharedMemorySize
typedef hipStream_t gpu_stream;
typedef hipEvent_t gpu_event;
typedef hipError_t gpu_error;
typedef hipDeviceProp_t gpu_properties;
#endif

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
/* From anywhere to anywhere. */
#define gpuMemcpyAsync(to, from, size, stream)                                                     \
    GPU_CALL(MemcpyAsync)(to, from, size, GPU_CALL(MemcpyDefault), stream)
#define gpuGetLastError   GPU_CALL(GetLastError)
#define gpuGetErrorString GPU_CALL(GetErrorString)
#else
#include "backends/gpu/emulator/emulator.h"
#define gpuSuccess           GPU_EMULATOR_OK
#define gpuGetDeviceCount    gpu_emulator_device_count
#define gpuSetDevice         gpu_emulator_set_device
#define gpuMemGetInfo        gpu_emulator_memory
#define gpuMalloc(out, size) gpu_emulator_malloc((void **)(out), size)
#define gpuFree              gpu_emulator_free
#define gpuStreamCreate      gpu_emulator_stream_create
#define gpuStreamDestroy     gpu_emulator_stream_destroy
#define gpuStreamSynchronize gpu_emulator_synchronize
#define gpuDeviceSynchronize gpu_emulator_synchronize_all
#define gpuStreamWaitEvent   gpu_emulator_event_wait
#define gpuEventCreate       gpu_emulator_event_create
#define gpuEventDestroy      gpu_emulator_event_destroy
#define gpuEventRecord       gpu_emulator_event_record
#define gpuEventSynchronize  gpu_emulator_event_synchronize
#define gpuEventElapsedTime  gpu_emulator_event_elapsed
#define gpuMemsetAsync       gpu_emulator_set
#define gpuMemcpyAsync       gpu_emulator_copy
#define gpuGetLastError      gpu_emulator_last_error
#define gpuGetErrorString    gpu_emulator_text
#endif

#if defined(GPU_CUDA) || defined(GPU_HIP)
/* Not of the default stream's order. */
static inline gpu_error gpuStreamCreate(gpu_stream *out)
{
    return GPU_CALL(StreamCreateWithFlags)(out, GPU_CALL(StreamNonBlocking));
}
#endif

/* Memory of the host that the device reaches by the same address. */
static inline gpu_error gpuHostAlloc(void **out, size_t bytes)
{
#if defined(GPU_CUDA)
    return cudaHostAlloc(out, bytes, GPU_HOST_ALLOC);
#elif defined(GPU_HIP)
    return hipHostMalloc(out, bytes, GPU_HOST_ALLOC);
#else
    return gpu_emulator_host_alloc(out, bytes);
#endif
}

static inline gpu_error gpuFreeHost(void *at)
{
#if defined(GPU_CUDA)
    return cudaFreeHost(at);
#elif defined(GPU_HIP)
    return hipHostFree(at);
#else
    return gpu_emulator_host_free(at);
#endif
}

static inline gpu_error gpu_device_name(char *to, size_t bytes, int device)
{
#if defined(GPU_CUDA) || defined(GPU_HIP)
    gpu_properties is;
    gpu_error error = GPU_CALL(GetDeviceProperties)(&is, device);
    snprintf(to, bytes, "%s", error == gpuSuccess ? is.name : "");
    return error;
#else
    snprintf(to, bytes, "emulated GPU %d", device);
    return gpuSuccess;
#endif
}

/* The device multiplies E4M3 and E5M2 as ops/float8.h has them: NVIDIA's since compute capability
 * 8.9.  AMD's of gfx942 have other zeros and NaNs. */
static inline gpu_error gpu_has_eight_bits(bool *out, int device)
{
    *out = false;
#if defined(GPU_CUDA)
    gpu_properties is;
    gpu_error error = cudaGetDeviceProperties(&is, device);
    if (error == gpuSuccess) *out = is.major * 10 + is.minor >= 89;
    return error;
#else
    (void)device;
    return gpuSuccess;
#endif
}

/* The device's own memory, not the host's. */
static inline bool gpu_is_device(const void *at)
{
#if defined(GPU_CUDA)
    struct cudaPointerAttributes is;
    if (cudaPointerGetAttributes(&is, at)) return cudaGetLastError(), false;
    return is.type == cudaMemoryTypeDevice;
#elif defined(GPU_HIP)
    hipPointerAttribute_t is;
    if (hipPointerGetAttributes(&is, at)) return (void)hipGetLastError(), false;
#if HIP_VERSION >= 60000000
    return is.type == hipMemoryTypeDevice;
#else
    return is.memoryType == hipMemoryTypeDevice;
#endif
#else
    return gpu_emulator_is_device(at);
#endif
}

/* DEVICE, with the runtime's own words. */
#define GPU_TRY(call)                                                                              \
    do {                                                                                           \
        gpu_error error_ = (call);                                                                 \
        if (error_ != gpuSuccess)                                                                  \
            FAIL(DEVICE, "the GPU reports at %s: %s", #call, gpuGetErrorString(error_));           \
    } while (0)
