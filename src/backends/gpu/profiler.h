/* profiler.h (gpu) -- named ranges for the vendor's profiler: NVTX for Nsight Systems and Nsight
 * Compute, roctx for rocprof; none in the emulator.  Without a profiler a range costs a few
 * nanoseconds. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

#if defined(GPU_CUDA)
#include <nvtx3/nvToolsExt.h> /* loads the profiler's library by itself, if one asks for it */
static inline bool profiler_open(void) { return true; }
static inline void profiler_push(const char *name) { nvtxRangePushA(name); }
static inline void profiler_pop(void) { nvtxRangePop(); }
#elif defined(GPU_HIP)
bool profiler_open(void); /* false: roctx is not installed */
void profiler_push(const char *name);
void profiler_pop(void);
#else
static inline bool profiler_open(void) { return false; }
static inline void profiler_push(const char *name) { (void)name; }
static inline void profiler_pop(void) {}
#endif
