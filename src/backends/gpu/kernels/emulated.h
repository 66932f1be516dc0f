/* emulated.h -- the words of CUDA's C++ that our kernels use, for a compiler that knows none; one
 * more is a line more. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/emulator/emulator.h"

#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__      static
#define __launch_bounds__(...)

struct dim3 : gpu_dim {
    dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
        : gpu_dim{width, height, depth}
    {
    }
};

#define threadIdx       (*gpu_emulator_thread)
#define blockIdx        gpu_emulator_block
#define blockDim        gpu_emulator_block_size
#define gridDim         gpu_emulator_grid_size
#define __syncthreads() gpu_emulator_barrier(__FILE__, __LINE__)

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
#define __expf(x) expf(x) /* libc has a function of this name */
static inline float __fdividef(float x, float y) { return x / y; }

template <typename To, typename From> static inline To emulated_bits(From x)
{
    To y;
    static_assert(sizeof x == sizeof y, "as many bits");
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }

/* Threads take turns at barriers only, so nothing comes between. */
template <typename T> static inline T atomicAdd(T *at, T x)
{
    T old = *at;
    *at = old + x;
    return old;
}

static inline void atomicMax(unsigned *at, unsigned x) { *at = x > *at ? x : *at; }

/* What lane `from` gives as x. */
template <typename T> static inline T emulated_shuffle(T x, int from, const char *file, int line)
{
    T y;
    const struct gpu_emulator_slot *all = gpu_emulator_gather(&x, sizeof x, file, line);
    gpu_emulator_check_lane(from, file, line);
    memcpy(&y, all[from].bytes, sizeof y);
    return y;
}

static inline void emulated_check(const char *, ...) {}
template <typename T> static inline void emulated_check(const char *kernel, T *at)
{
    gpu_emulator_check_pointer(kernel, (const void *)at);
}

template <typename... Parameters, typename... Arguments>
static inline void emulated_launch(const char *name, int wave, void (*kernel)(Parameters...),
                                   dim3 grid, dim3 block, size_t shared_bytes, gpu_stream stream,
                                   Arguments... arguments)
{
    auto call = [=] { kernel(arguments...); };
    (emulated_check(name, arguments), ...);
    struct gpu_emulator_kernel k = {
        name,
        grid,
        block,
        shared_bytes,
        sizeof call,
        wave,
        [](const void *closure) { (*(const decltype(call) *)closure)(); },
        &call};
    gpu_emulator_launch(&k, stream);
}
