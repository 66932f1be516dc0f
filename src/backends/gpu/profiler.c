// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/profiler.h"

#if defined(GPU_HIP)
#include "base/library.h"

#include <stddef.h>

int roctxRangePushA(const char *name);
int roctxRangePop(void);

#define ROCTX_FUNCTIONS(F)                                                                         \
    F(int, roctxRangePushA, (const char *name), (name))                                            \
    F(int, roctxRangePop, (void), ())
/* rocprofv3 (ROCm 6.2 and later) records the ranges of its own library only, and rocprof those of
 * the old one. */
LIBRARY_DEFINE("roctx",
               "librocprofiler-sdk-roctx.so.1 librocprofiler-sdk-roctx.so.0 libroctx64.so.4", NULL,
               ROCTX_FUNCTIONS)

bool profiler_open(void) { return !library_open(&library); }

void profiler_push(const char *name) { (void)roctxRangePushA(name); }

void profiler_pop(void) { (void)roctxRangePop(); }
#endif
