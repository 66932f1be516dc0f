/* rocblas.h -- the part of rocBLAS's interface that rocblas_gemm.c uses, declared here so that the
 * program builds without its headers.
 *
 * Values and prototypes are those of rocBLAS 3 to 5 (ROCm 5.6 to 7), which agree. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum rocblas_status {
    ROCBLAS_SUCCESS = 0,
    ROCBLAS_INVALID_HANDLE = 1,
    ROCBLAS_NOT_IMPLEMENTED = 2,
    ROCBLAS_INVALID_POINTER = 3,
    ROCBLAS_INVALID_SIZE = 4,
    ROCBLAS_MEMORY_ERROR = 5,
    ROCBLAS_INTERNAL_ERROR = 6,
    ROCBLAS_INVALID_VALUE = 11,
};
enum rocblas_operation { ROCBLAS_OPERATION_NONE = 111, ROCBLAS_OPERATION_TRANSPOSE = 112 };
enum rocblas_type { ROCBLAS_F32_R = 151, ROCBLAS_BF16_R = 168 };
enum rocblas_atomics { ROCBLAS_ATOMICS_NOT_ALLOWED = 0, ROCBLAS_ATOMICS_ALLOWED = 1 };
enum rocblas_algorithm { ROCBLAS_ALGORITHM_STANDARD = 0 };

typedef struct rocblas_context *rocblas_handle;

/* rocblas_load.c, or the tests' stub.  Call before any function of the library.  UNSUPPORTED: it is
 * not installed, or lacks a function. */
enum status rocblas_load(void);

enum rocblas_status rocblas_create_handle(rocblas_handle *out);
enum rocblas_status rocblas_destroy_handle(rocblas_handle h);
enum rocblas_status rocblas_set_stream(rocblas_handle h, void *stream);
enum rocblas_status rocblas_set_workspace(rocblas_handle h, void *at, size_t bytes);
enum rocblas_status rocblas_set_atomics_mode(rocblas_handle h, enum rocblas_atomics mode);
enum rocblas_status rocblas_get_version_string(char *to, size_t bytes);
enum rocblas_status
rocblas_gemm_ex(rocblas_handle h, enum rocblas_operation a_operation,
                enum rocblas_operation b_operation, int32_t m, int32_t n, int32_t k,
                const void *alpha, const void *a, enum rocblas_type a_type, int32_t a_leading,
                const void *b, enum rocblas_type b_type, int32_t b_leading, const void *beta,
                const void *c, enum rocblas_type c_type, int32_t c_leading, void *d,
                enum rocblas_type d_type, int32_t d_leading, enum rocblas_type compute_type,
                enum rocblas_algorithm algorithm, int32_t solution, uint32_t flags);
