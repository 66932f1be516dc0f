/* stub_cublaslt.h (tests) -- a stub of cuBLASLt that multiplies on the emulated GPU, and counts its
 * calls.
 *
 * It knows three algorithms: the first can be made to fail when it runs, the second needs a
 * workspace, the third has neither property.  It rejects GEMMs with K = STUB_UNSUPPORTED_K.  Where
 * cuBLASLt rejects a call or leaves it undefined, the stub returns an error: sizes that do not
 * match, memory that is less aligned than promised, a workspace that is too small, FP8 that is not
 * A^T B or, when the heuristics are queried, has no scales. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

enum {
    STUB_UNSUPPORTED_K = 13,
    STUB_ALGORITHMS = 3,
    STUB_WORD_REDUCTION = 3, /* of an algorithm's data: its cublasLtReductionScheme_t */
};

struct stub_cublaslt {
    int handles, matmuls, layouts, preferences; /* that exist */
    int num_heuristics;                         /* calls */
    int multiprocessors;                        /* SM_COUNT_TARGET of the last of them */
    int ran[STUB_ALGORITHMS];                   /* GEMMs, by algorithm */
    int failed;
    int fast_accumulation; /* GEMMs that accumulate in less than f32 */
    int other_reductions;  /* queries that allowed another reduction scheme than COMPUTE_TYPE */
};
extern struct stub_cublaslt stub_cublaslt;
void stub_cublaslt_break(bool broken);
void stub_cublaslt_hide(bool hidden); /* as if it were not installed */
