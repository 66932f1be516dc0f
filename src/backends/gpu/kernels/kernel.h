/* kernel.h -- what the kernels share: warps, reductions in a fixed order, number types, vector
 * loads and stores, launches.
 *
 * docs/gpu-kernels.md describes each kernel.  Compiled by nvcc, hipcc, or g++ for the emulator.
 * Everything in a .cu is static except the slots of ops.def, which are extern "C" and named with
 * GPU_NAME.
 * Warps    A warp is NVIDIA's warp of 32 lanes or AMD's wavefront of 64.  WARP_SIZE is for device
 *          code only.  A block is a whole number of warps; all lanes of a warp reach each shuffle.
 * Order    A reduction over a warp or a block has an order that depends on the block size only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/queue.h"
#include "backends/gpu/runtime.h"

extern "C" {
#include "base/arena.h"
#include "tensor/dtype.h"
}

#include <stdint.h>

#if defined(GPU_EMULATED)
#include "backends/gpu/kernels/emulated.h"
#define WARP_SIZE GPU_EMULATED
#elif defined(GPU_HIP) && (defined(__GFX8__) || defined(__GFX9__))
#define WARP_SIZE 64
#else
#define WARP_SIZE 32
#endif

/* For launch configurations, which the host computes without knowing the warp size. */
enum { MAX_WARP_SIZE = 64, MAX_BLOCK_SIZE = 1024 };

/* --- launches --- */

/* What an earlier call left is not the next kernel's: one of ours that failed, such as the query of
 * another device, or one inside a library, as all in the process share the error with HIP. */
static inline void forget_last_error(void) { (void)gpuGetLastError(); }

static inline enum status check_launch(struct queue *queue, const char *kernel)
{
    gpu_error error = gpuGetLastError();
    /* With a trace, wait for the kernel, so that the trace measures it. */
    if (error == gpuSuccess && queue->trace) error = gpuStreamSynchronize(gpu_stream_of(queue));
    if (error != gpuSuccess) FAIL(DEVICE, "kernel %s: %s", kernel, gpuGetErrorString(error));
    return STATUS_OK;
}

/* kernel<<<grid, block, shared_bytes>>>(...) on the queue's stream; returns DEVICE from the calling
 * function on failure.  A template name that contains a comma needs parentheses. */
#if defined(GPU_EMULATED)
#define LAUNCH(kernel, grid, block, shared_bytes, queue, ...)                                      \
    do {                                                                                           \
        forget_last_error();                                                                       \
        emulated_launch(#kernel, WARP_SIZE, kernel, dim3(grid), dim3(block), shared_bytes,         \
                        gpu_stream_of(queue), __VA_ARGS__);                                        \
        TRY(check_launch(queue, #kernel));                                                         \
    } while (0)
/* The block's dynamic shared memory. */
#define DYNAMIC_SHARED(type, name) type *name = (type *)thread_block_shared()
#define shuffle_from(x, lane)      emulated_shuffle(x, lane, __FILE__, __LINE__)
#define warp_sync()                thread_block_warp_sync(__FILE__, __LINE__)
#else
/* Above 48 KiB, static and dynamic together, a kernel must opt in.  Ours that have dynamic shared
 * memory have at most 1 KiB of static. */
#define LAUNCH(kernel, grid, block, shared_bytes, queue, ...)                                      \
    do {                                                                                           \
        if ((shared_bytes) > 47 << 10)                                                             \
            GPU_TRY(GPU_CALL(FuncSetAttribute)((const void *)(kernel), GPU_SHARED_SIZE,            \
                                               (int)(shared_bytes)));                              \
        forget_last_error();                                                                       \
        (kernel)<<<dim3(grid), dim3(block), shared_bytes, gpu_stream_of(queue)>>>(__VA_ARGS__);    \
        TRY(check_launch(queue, #kernel));                                                         \
    } while (0)
extern __shared__ uint4 gpu_dynamic_shared[];
#define DYNAMIC_SHARED(type, name) type *name = (type *)gpu_dynamic_shared
#if defined(GPU_CUDA)
#define shuffle_from(x, lane) __shfl_sync(0xFFFFFFFFu, x, lane)
#define warp_sync()           __syncwarp()
#else
#define shuffle_from(x, lane) __shfl(x, lane)
/* A barrier and memory fence for the lanes of a wavefront. */
static __device__ __forceinline__ void warp_sync()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier(); /* does not order memory accesses by itself */
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
/* As HIP's, with a wait for shared memory that the compiler keeps: clang 19, and probably each
 * before LLVM's pull request 220357 of September 2026, drops the fence's wait where a loop begins
 * with the barrier, so that other waves read what has not been written yet. */
static __device__ __forceinline__ void block_sync()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_waitcnt(0xC07F); /* lgkmcnt(0) */
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define __syncthreads()       block_sync()
#endif
#endif

/* --- warps and blocks --- */

/* In a one-dimensional block. */
static __device__ __forceinline__ int lane_index() { return (int)(threadIdx.x % WARP_SIZE); }
static __device__ __forceinline__ int warp_index() { return (int)(threadIdx.x / WARP_SIZE); }

/* The value of the lane whose index is this lane's ^ mask; T has 4 or 8 bytes. */
template <typename T> static __device__ __forceinline__ T shuffle_xor(T x, int mask)
{
#if defined(GPU_CUDA)
    return __shfl_xor_sync(0xFFFFFFFFu, x, mask);
#else
    return shuffle_from(x, lane_index() ^ mask);
#endif
}

template <typename T> static __device__ __forceinline__ T warp_sum(T x)
{
    for (int mask = WARP_SIZE / 2; mask; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

template <typename T> static __device__ __forceinline__ T larger(T a, T b) { return a > b ? a : b; }

template <typename T> static __device__ __forceinline__ T warp_max(T x)
{
    for (int mask = WARP_SIZE / 2; mask; mask /= 2) x = larger(x, shuffle_xor(x, mask));
    return x;
}

/* The sum over a one-dimensional block, returned to every thread.  All threads must call it. */
template <typename T> static __device__ __forceinline__ T block_sum(T x)
{
    __shared__ T warps[MAX_BLOCK_SIZE / 32];
    x = warp_sum(x);
    __syncthreads(); /* the previous call's result has been read */
    if (lane_index() == 0) warps[warp_index()] = x;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < (int)blockDim.x / WARP_SIZE; i++) sum += warps[i];
    return sum;
}

/* The same for the maximum, but a kernel may call it only once. */
template <typename T> static __device__ __forceinline__ T block_max(T x)
{
    __shared__ T warps[MAX_BLOCK_SIZE / 32];
    x = warp_max(x);
    if (lane_index() == 0) warps[warp_index()] = x;
    __syncthreads();
    T max = warps[0];
    for (int i = 1; i < (int)blockDim.x / WARP_SIZE; i++) max = larger(max, warps[i]);
    return max;
}

/* --- number types: f32 in registers, f32 or bf16 in memory --- */

static __device__ __forceinline__ float to_f32(float x) { return x; }
static __device__ __forceinline__ float to_f32(bf16 x)
{
    return __uint_as_float((unsigned)x << 16);
}

/* Rounds as bf16_from_f32 of dtype.h. */
static __device__ __forceinline__ void from_f32(float x, float *y) { *y = x; }
static __device__ __forceinline__ void from_f32(float x, bf16 *y)
{
#if defined(GPU_CUDA) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*y) : "f"(x));
#else
    unsigned bits = __float_as_uint(x);
    *y = (bf16)((x != x ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
#endif
}

/* As split_to_f32 and split_from_f32 of dtype.h. */
static __device__ __forceinline__ float join_split(bf16 half, uint16_t low)
{
    unsigned is_nan = (half & 0x7FFFu) > 0x7F80u, up = is_nan ? 0 : low >> 15;
    return __uint_as_float(((unsigned)half - up) << 16 | low);
}
static __device__ __forceinline__ void make_split(float x, bf16 *half, uint16_t *low)
{
    unsigned bits = __float_as_uint(x), is_nan = (bits >> 16 & 0x7FFFu) > 0x7F80u;
    *half = (bf16)((is_nan ? bits : bits + 0x8000u) >> 16);
    *low = (uint16_t)bits;
}

/* x rounded to type T. */
template <typename T> static __device__ __forceinline__ float round_to(float x)
{
    T y;
    from_f32(x, &y);
    return to_f32(y);
}

/* The bits of |x| rounded to type T.  As unsigned integers they order like the values, with NaN
 * above everything. */
template <typename T> static __device__ __forceinline__ unsigned abs_bits(float x)
{
    return __float_as_uint(round_to<T>(x)) & 0x7FFFFFFFu;
}

/* Merges a block's amax (as abs_bits) into the operation's, which is 0 before the launch.  A
 * maximum does not depend on the order of the blocks.  All threads of the block must call it. */
static __device__ __forceinline__ void update_amax(unsigned bits, float *amax)
{
    if (!amax) return;
    bits = block_max(bits);
    if (threadIdx.x == 0) atomicMax((unsigned *)amax, bits);
}

/* WIDTH consecutive elements as f32.  With WIDTH > 1 x must be aligned to 16 bytes, and WIDTH a
 * multiple of the elements of a 16-byte vector. */
template <int WIDTH, typename T>
static __device__ __forceinline__ void load(const T *x, float (&to)[WIDTH])
{
    if constexpr (WIDTH == 1) {
        to[0] = to_f32(*x);
    } else {
        enum { VECTOR = 16 / sizeof(T) };
        static_assert(WIDTH % VECTOR == 0, "whole vectors");
        for (int i = 0; i < WIDTH; i += VECTOR) {
            uint4 bits = *(const uint4 *)(x + i);
            T part[VECTOR];
            memcpy(part, &bits, sizeof bits);
            for (int k = 0; k < VECTOR; k++) to[i + k] = to_f32(part[k]);
        }
    }
}

template <int WIDTH, typename T>
static __device__ __forceinline__ void store(const float (&from)[WIDTH], T *x)
{
    if constexpr (WIDTH == 1) {
        from_f32(from[0], x);
    } else {
        enum { VECTOR = 16 / sizeof(T) };
        static_assert(WIDTH % VECTOR == 0, "whole vectors");
        for (int i = 0; i < WIDTH; i += VECTOR) {
            uint4 bits;
            T part[VECTOR];
            for (int k = 0; k < VECTOR; k++) from_f32(from[i + k], &part[k]);
            memcpy(&bits, part, sizeof bits);
            *(uint4 *)(x + i) = bits;
        }
    }
}

/* The same for raw 16-bit words. */
template <int WIDTH>
static __device__ __forceinline__ void load_bits(const uint16_t *x, uint16_t (&to)[WIDTH])
{
    static_assert(WIDTH == 1 || WIDTH % 8 == 0, "whole vectors");
    if constexpr (WIDTH == 1)
        to[0] = *x;
    else
        for (int i = 0; i < WIDTH; i += 8) {
            uint4 bits = *(const uint4 *)(x + i);
            memcpy(to + i, &bits, sizeof bits);
        }
}

template <int WIDTH>
static __device__ __forceinline__ void store_bits(const uint16_t (&from)[WIDTH], uint16_t *x)
{
    static_assert(WIDTH == 1 || WIDTH % 8 == 0, "whole vectors");
    if constexpr (WIDTH == 1)
        *x = from[0];
    else
        for (int i = 0; i < WIDTH; i += 8) {
            uint4 bits;
            memcpy(&bits, from + i, sizeof bits);
            *(uint4 *)(x + i) = bits;
        }
}

/* --- on the host --- */

/* Resets an amax that a kernel will update; NULL: it computes none. */
static inline enum status zero_amax(float *amax, struct queue *queue)
{
    if (amax) GPU_TRY(gpuMemsetAsync(amax, 0, sizeof *amax, gpu_stream_of(queue)));
    return STATUS_OK;
}

/* Returns the status of f<T, WIDTH>(...), where T is the type of dtype and WIDTH the number of
 * elements in 16 bytes, or 1 if they are not aligned. */
#define BY_DTYPE_AND_WIDTH(dtype, aligned, f, ...)                                                 \
    do {                                                                                           \
        if ((dtype) == F32)                                                                        \
            return (aligned) ? f<float, 4>(__VA_ARGS__) : f<float, 1>(__VA_ARGS__);                \
        return (aligned) ? f<bf16, 8>(__VA_ARGS__) : f<bf16, 1>(__VA_ARGS__);                      \
    } while (0)

static inline bool is_aligned(const void *x) { return (uintptr_t)x % 16 == 0; }
/* Whether every row of `elements` is aligned to 16 bytes if the first one is. */
static inline bool rows_are_aligned(size_t elements, enum dtype dtype)
{
    return elements * dtype_bytes(dtype) % 16 == 0;
}
static inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
/* `threads` rounded up to whole warps, at most `max`, a multiple of MAX_WARP_SIZE. */
static inline unsigned block_size(size_t threads, unsigned max)
{
    size_t rounded = ceil_div(threads, MAX_WARP_SIZE) * MAX_WARP_SIZE;
    return rounded > max ? max : (unsigned)rounded;
}
