/* stub_cublaslt.h (tests) -- what the library that stands in for cuBLASLt has done.
 *
 * It knows three algorithms: the first may be broken, so that it fails when it runs, the second
 * wants a workspace, the third is as good.  It takes no product whose sum is over STUB_UNKNOWN
 * numbers.  What cuBLASLt refuses or leaves undefined it answers with an error: sizes that do not
 * fit each other, memory that is less aligned than was promised, a workspace that is too small,
 * eight bits that are not A^T B. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

enum { STUB_UNKNOWN = 13, STUB_ALGORITHMS = 3 };

struct stub_cublaslt {
    int libraries, products, layouts, wishes; /* that are open */
    int asked;                                /* for algorithms */
    int ran[STUB_ALGORITHMS];                 /* products, by algorithm */
    int failed;
    int fast; /* products with sums of less than f32 */
};
extern struct stub_cublaslt stub_cublaslt;
void stub_cublaslt_break(bool broken);
