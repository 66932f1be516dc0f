/* emulated.h -- the parts of CUDA C++ that our kernels use, for a plain C++ compiler: built-in
 * variables, vector types, atomics, shuffles and launches, over the emulator. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/emulator/emulator.h"

#include <math.h>
#include <string.h>

#define __global__
/* For tests/memcheck all are inlined: g++ does not report the reads of a struct that is passed by
 * value. */
#if defined(GPU_CHECKED)
#define __device__ __attribute__((always_inline))
#else
#define __device__
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__      static
#define __launch_bounds__(...)

struct dim3 : grid_dim {
    dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
        : grid_dim{width, height, depth}
    {
    }
};

#define threadIdx       (*thread_block_thread_idx)
#define blockIdx        thread_block_idx
#define blockDim        thread_block_dim
#define gridDim         thread_block_grid_dim
#define __syncthreads() thread_block_barrier(__FILE__, __LINE__)

struct alignas(8) float2 {
    float x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline size_t min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t max(size_t a, size_t b) { return a > b ? a : b; }
/* As CUDA computes it: most of its error is that of the product.  libc declares a function of this
 * name. */
#define __expf(x) exp2f((x)*1.44269504f)
static inline float __fdividef(float x, float y) { return x / y; }

template <typename To, typename From> static inline To emulated_bits(From x)
{
    To y;
    static_assert(sizeof x == sizeof y, "same size");
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }

/* Threads only switch at barriers, so a plain read and write is atomic.  volatile tells
 * tests/memcheck that it is. */
template <typename T> static inline T atomicAdd(T *sum, T x)
{
    volatile T *at = sum;
    T old = *at;
    *at = old + x;
    return old;
}

static inline void atomicMax(unsigned *max, unsigned x)
{
    volatile unsigned *at = max;
    unsigned old = *at;
    *at = x > old ? x : old;
}

/* The x of lane `from`.  On NVIDIA GPUs the mask names all lanes. */
template <typename T> static inline T emulated_shuffle(T x, int from, const char *file, int line)
{
    T y;
    const struct warp_slot *all = thread_block_warp_gather(&x, sizeof x, file, line);
    thread_block_check_all_lanes(file, line), thread_block_check_lane(from, file, line);
    memcpy(&y, all[from].bytes, sizeof y);
    return y;
}

/* Checks the arguments that are pointers. */
static inline void emulated_check(const char *, ...) {}
template <typename T> static inline void emulated_check(const char *kernel, T *pointer)
{
    emulator_check_pointer(kernel, (const void *)pointer);
}

template <typename... Parameters, typename... Arguments>
static inline void emulated_launch(const char *name, int warp_size, void (*kernel)(Parameters...),
                                   dim3 grid, dim3 block, size_t shared_bytes, gpu_stream stream,
                                   Arguments... arguments)
{
    auto call = [=] { kernel(arguments...); };
    (emulated_check(name, arguments), ...);
    struct kernel_launch launch = {
        name,
        grid,
        block,
        shared_bytes,
        sizeof call,
        warp_size,
        [](const void *closure) { (*(const decltype(call) *)closure)(); },
        &call};
    emulator_launch(&launch, stream);
}
