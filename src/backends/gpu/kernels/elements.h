/* elements.h -- loops of kernels over flat ranges: every element is read and written once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

enum { BLOCK = 256 };
#if defined(GPU_EMULATED)
static const unsigned max_grid = 2; /* so that small tests take several rounds */
#else
static const unsigned max_grid = 4096;
#endif
template <int N> struct constant_width {
    enum { value = N };
};

/* Calls step(constant_width<N>, at) for elements at..at+N-1, until all n are done: N = WIDTH, and 1
 * for the last ones.  A grid of element_blocks(n, WIDTH). */
template <int WIDTH, typename Step>
static __device__ __forceinline__ void for_elements(size_t n, const Step &step)
{
    const size_t threads = (size_t)gridDim.x * BLOCK, vectors = n / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    for (size_t i = first; i < vectors; i += threads) step(constant_width<WIDTH>{}, i * WIDTH);
    for (size_t i = vectors * WIDTH + first; i < n; i += threads) step(constant_width<1>{}, i);
}
static unsigned element_blocks(size_t n, size_t per_thread)
{
    size_t blocks = ceil_div(n, BLOCK * per_thread);
    return blocks < max_grid ? (unsigned)blocks : max_grid;
}
