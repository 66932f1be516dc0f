/* emulated.h -- the words of CUDA's C++ that our kernels use, for a compiler that knows none. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/emulator.h"

#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __restrict__ __restrict
#define __shared__   static
#define __constant__ static const
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
static inline void __threadfence() {}
static inline void __threadfence_block() {}

#define EMULATED_VECTOR(type, name)                                                                \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                       \
    struct alignas(4 * sizeof(type)) name##4 { type x, y, z, w; };                                 \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                        \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATED_VECTOR(float, float)
EMULATED_VECTOR(int, int)
EMULATED_VECTOR(unsigned, uint)
#undef EMULATED_VECTOR

template <typename T> static inline T __ldg(const T *x) { return *x; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline size_t min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t max(size_t a, size_t b) { return a > b ? a : b; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
#define __expf(x) expf(x) /* libc has functions of these names */
#define __logf(x) logf(x)
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }

template <typename To, typename From> static inline To emulated_bits(From x)
{
    To y;
    static_assert(sizeof x == sizeof y, "as many bits");
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline int __float_as_int(float x) { return emulated_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return emulated_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }

/* Threads take turns at barriers only, so nothing comes between. */
#define EMULATED_ATOMIC(name, result)                                                              \
    template <typename T> static inline T name(T *at, T x)                                         \
    {                                                                                              \
        T old = *at;                                                                               \
        *at = result;                                                                              \
        return old;                                                                                \
    }
EMULATED_ATOMIC(atomicAdd, (T)(old + x))
EMULATED_ATOMIC(atomicMax, old > x ? old : x)
EMULATED_ATOMIC(atomicMin, old < x ? old : x)
EMULATED_ATOMIC(atomicExch, x)
EMULATED_ATOMIC(atomicOr, (T)(old | x))
#undef EMULATED_ATOMIC
template <typename T> static inline T atomicCAS(T *at, T expected, T x)
{
    T old = *at;
    if (old == expected) *at = x;
    return old;
}

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
