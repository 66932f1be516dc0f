/* stub_hipblaslt.h (tests) -- a stub of hipBLASLt that multiplies on the emulated GPU, and counts
 * its calls.
 *
 * It has one algorithm, which needs a workspace, and none for K = STUB_HIP_UNSUPPORTED_K.
 * Sizes that do not match, operands that are not aligned to 16 bytes and a workspace that is too
 * small are errors. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

enum { STUB_HIP_UNSUPPORTED_K = 13 };

struct stub_hipblaslt {
    int handles, descriptors, layouts, preferences; /* that exist */
    int num_heuristics, ran, failed;                /* calls */
};
extern struct stub_hipblaslt stub_hipblaslt;
void stub_hipblaslt_break(bool broken);
void stub_hipblaslt_refuse(bool refused);     /* when it is called, what it has algorithms for */
void stub_hipblaslt_hide(bool hidden);        /* as if it were not installed */
void stub_hipblaslt_set_version(int version); /* 100401 is 1.4.1 */
