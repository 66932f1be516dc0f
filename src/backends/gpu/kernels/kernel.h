/* kernel.h -- what kernels share: waves, sums in a fixed order, numbers and vectors in memory,
 * launches.
 *
 * Compiled by nvcc, hipcc, or g++ for the emulator.  Every function and kernel of a .cu is static
 * but the slots of ops.def, which are extern "C" and named by GPU_NAME.
 * Waves    WAVE threads, 32 or 64, run together; it is a constant of device code only, and a block
 *          is a whole number of waves.  All lanes of a wave come to each shuffle.
 * Order    Sums over a wave or a block are in an order that depends on the block's size alone. */
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
#define WAVE GPU_EMULATED
#elif defined(GPU_HIP) && (defined(__GFX8__) || defined(__GFX9__))
#define WAVE 64
#else
#define WAVE 32
#endif

/* For the host's sizes: as many lanes as a wave has at most. */
enum { WAVE_MOST = 64, BLOCK_MOST = 1024 };

/* ---- launches */

static inline enum status gpu_launched(struct queue *on, const char *kernel)
{
    gpu_error error = gpuGetLastError();
    /* Traced, a launch ends when its work does, so that the trace says what took the time. */
    if (error == gpuSuccess && on->trace) error = gpuStreamSynchronize(gpu_stream_of(on));
    if (error != gpuSuccess) FAIL(DEVICE, "kernel %s: %s", kernel, gpuGetErrorString(error));
    return STATUS_OK;
}

/* kernel<<<grid, block, shared_bytes>>>(...) on the queue's stream; returns DEVICE from the caller
 * where it fails.  A template with a comma in its name goes in parentheses. */
#if defined(GPU_EMULATED)
#define LAUNCH(kernel, grid, block, shared_bytes, on, ...)                                         \
    do {                                                                                           \
        emulated_launch(#kernel, WAVE, kernel, dim3(grid), dim3(block), shared_bytes,              \
                        gpu_stream_of(on), __VA_ARGS__);                                           \
        TRY(gpu_launched(on, #kernel));                                                            \
    } while (0)
/* The block's dynamic shared memory. */
#define DYNAMIC_SHARED(type, name) type *name = (type *)gpu_emulator_shared()
#define shuffle_from(x, lane)      emulated_shuffle(x, lane, __FILE__, __LINE__)
#define wave_barrier()             (void)gpu_emulator_gather("", 1, __FILE__, __LINE__)
#else
#define LAUNCH(kernel, grid, block, shared_bytes, on, ...)                                         \
    do {                                                                                           \
        if ((shared_bytes) > 48 << 10)                                                             \
            GPU_TRY(GPU_CALL(FuncSetAttribute)((const void *)(kernel), GPU_SHARED_SIZE,            \
                                               (int)(shared_bytes)));                              \
        (kernel)<<<dim3(grid), dim3(block), shared_bytes, gpu_stream_of(on)>>>(__VA_ARGS__);       \
        TRY(gpu_launched(on, #kernel));                                                            \
    } while (0)
extern __shared__ uint4 gpu_dynamic_shared[];
#define DYNAMIC_SHARED(type, name) type *name = (type *)gpu_dynamic_shared
#if defined(GPU_CUDA)
#define shuffle_from(x, lane) __shfl_sync(0xFFFFFFFFu, x, lane)
#define wave_barrier()        __syncwarp()
#else
#define shuffle_from(x, lane) __shfl(x, lane)
/* What a wave's lanes wrote to shared memory before it they all read after it. */
static __device__ __forceinline__ void wave_barrier()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier(); /* alone it would not keep memory in order */
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif
#endif

/* ---- threads */

/* Of a block with one axis. */
static __device__ __forceinline__ int lane_index() { return (int)(threadIdx.x % WAVE); }
static __device__ __forceinline__ int wave_index() { return (int)(threadIdx.x / WAVE); }

/* The lane whose number differs in the bits of `mask`, of any type of 4 or 8 bytes. */
template <typename T> static __device__ __forceinline__ T shuffle_xor(T x, int mask)
{
#if defined(GPU_CUDA)
    return __shfl_xor_sync(0xFFFFFFFFu, x, mask);
#else
    return shuffle_from(x, lane_index() ^ mask);
#endif
}

template <typename T> static __device__ __forceinline__ T wave_sum(T x)
{
    for (int mask = WAVE / 2; mask; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

template <typename T> static __device__ __forceinline__ T larger(T a, T b) { return a > b ? a : b; }

template <typename T> static __device__ __forceinline__ T wave_max(T x)
{
    for (int mask = WAVE / 2; mask; mask /= 2) x = larger(x, shuffle_xor(x, mask));
    return x;
}

/* The sum over a block with one axis, to every thread.  All of the block come here. */
template <typename T> static __device__ __forceinline__ T block_sum(T x)
{
    __shared__ T waves[BLOCK_MOST / 32];
    x = wave_sum(x);
    __syncthreads(); /* who still reads the sum before */
    if (lane_index() == 0) waves[wave_index()] = x;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < (int)blockDim.x / WAVE; i++) sum += waves[i];
    return sum;
}

template <typename T> static __device__ __forceinline__ T block_max(T x)
{
    __shared__ T waves[BLOCK_MOST / 32];
    x = wave_max(x);
    __syncthreads();
    if (lane_index() == 0) waves[wave_index()] = x;
    __syncthreads();
    T most = waves[0];
    for (int i = 1; i < (int)blockDim.x / WAVE; i++) most = larger(most, waves[i]);
    return most;
}

/* ---- numbers: f32 in registers, either type in memory */

static __device__ __forceinline__ float to_f32(float x) { return x; }
static __device__ __forceinline__ float to_f32(bf16 x)
{
    return __uint_as_float((unsigned)x << 16);
}

/* As bf16_from_f32 of dtype.h rounds. */
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
static __device__ __forceinline__ float joined(bf16 half, uint16_t low)
{
    unsigned is_nan = (half & 0x7FFFu) > 0x7F80u, up = is_nan ? 0 : low >> 15;
    return __uint_as_float(((unsigned)half - up) << 16 | low);
}
static __device__ __forceinline__ void split(float x, bf16 *half, uint16_t *low)
{
    unsigned bits = __float_as_uint(x), is_nan = (bits >> 16 & 0x7FFFu) > 0x7F80u;
    *half = (bf16)((is_nan ? bits : bits + 0x8000u) >> 16);
    *low = (uint16_t)bits;
}

/* x as memory of type T keeps it. */
template <typename T> static __device__ __forceinline__ float rounded(float x)
{
    T y;
    from_f32(x, &y);
    return to_f32(y);
}

/* |x| as memory of type T keeps it, as bits: these are ordered as the numbers are, and NaN is above
 * all. */
template <typename T> static __device__ __forceinline__ unsigned size_bits(float x)
{
    return __float_as_uint(rounded<T>(x)) & 0x7FFFFFFFu;
}

/* A block's part of an operation's `largest`, which is 0 before the launch.  The order in which
 * blocks come does not show.  All of the block come here. */
static __device__ __forceinline__ void add_largest(unsigned most, float *largest)
{
    if (!largest) return;
    most = block_max(most);
    if (threadIdx.x == 0) atomicMax((unsigned *)largest, most);
}

/* WIDTH numbers that lie one behind the other, as f32: by 16 bytes at a time where there are so
 * many, for which at WIDTH > 1 x is aligned to 16 bytes. */
template <int WIDTH, typename T>
static __device__ __forceinline__ void load(const T *x, float (&to)[WIDTH])
{
    if constexpr (WIDTH == 1) {
        to[0] = to_f32(*x);
    } else {
        enum { EACH = 16 / sizeof(T) };
        static_assert(WIDTH % EACH == 0, "whole vectors");
        for (int i = 0; i < WIDTH; i += EACH) {
            uint4 bits = *(const uint4 *)(x + i);
            T part[EACH];
            memcpy(part, &bits, sizeof bits);
            for (int k = 0; k < EACH; k++) to[i + k] = to_f32(part[k]);
        }
    }
}

template <int WIDTH, typename T>
static __device__ __forceinline__ void store(const float (&from)[WIDTH], T *x)
{
    if constexpr (WIDTH == 1) {
        from_f32(from[0], x);
    } else {
        enum { EACH = 16 / sizeof(T) };
        static_assert(WIDTH % EACH == 0, "whole vectors");
        for (int i = 0; i < WIDTH; i += EACH) {
            uint4 bits;
            T part[EACH];
            for (int k = 0; k < EACH; k++) from_f32(from[i + k], &part[k]);
            memcpy(&bits, part, sizeof bits);
            *(uint4 *)(x + i) = bits;
        }
    }
}

/* The same of what is not a number, by its bits. */
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

/* ---- on the host */

static inline enum status begin_largest(float *largest, struct queue *on)
{
    if (largest) GPU_TRY(gpuMemsetAsync(largest, 0, sizeof *largest, gpu_stream_of(on)));
    return STATUS_OK;
}

/* Returns the status of f<T, WIDTH>(...): T the type of dtype, WIDTH as many numbers as fill 16
 * bytes, or one where they are not aligned. */
#define BY_DTYPE_AND_WIDTH(dtype, aligned, f, ...)                                                 \
    do {                                                                                           \
        if ((dtype) == F32)                                                                        \
            return (aligned) ? f<float, 4>(__VA_ARGS__) : f<float, 1>(__VA_ARGS__);                \
        return (aligned) ? f<bf16, 8>(__VA_ARGS__) : f<bf16, 1>(__VA_ARGS__);                      \
    } while (0)

static inline bool is_aligned(const void *x) { return (uintptr_t)x % 16 == 0; }
/* Rows of so many numbers begin at multiples of 16 bytes where the first does. */
static inline bool rows_are_aligned(size_t numbers, enum dtype dtype)
{
    return numbers * dtype_bytes(dtype) % 16 == 0;
}
static inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
/* As many threads, in whole waves; `most` is a multiple of WAVE_MOST. */
static inline unsigned block_of(size_t threads, unsigned most)
{
    size_t whole = ceil_div(threads, WAVE_MOST) * WAVE_MOST;
    return whole > most ? most : (unsigned)whole;
}
