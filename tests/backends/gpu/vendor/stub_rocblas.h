/* stub_rocblas.h (tests) -- a stub of rocBLAS that multiplies on the emulated GPU, and counts its
 * calls.
 *
 * It refuses K = STUB_ROC_UNSUPPORTED_K, sizes that do not match, and calls without a stream, a
 * workspace or the mode without atomics. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { STUB_ROC_UNSUPPORTED_K = 26 };

struct stub_rocblas {
    int handles;     /* that exist */
    int ran, failed; /* calls */
    size_t workspace;
    bool allocates; /* a handle has memory of its own */
};
extern struct stub_rocblas stub_rocblas;
void stub_rocblas_hide(bool hidden);    /* as if it were not installed */
void stub_rocblas_miscount(bool wrong); /* elements of C, by 1 */
void stub_rocblas_break(bool broken);
