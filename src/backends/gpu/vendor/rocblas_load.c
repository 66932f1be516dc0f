/* Defines the functions of rocBLAS that rocblas_gemm.c calls; they forward to the library, which
 * dlopen finds at run time.  The tests link a stub instead. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/rocblas.h"

#include "backends/gpu/runtime.h"
#include "base/library.h"

typedef enum rocblas_status status;
typedef enum rocblas_operation operation;
typedef enum rocblas_type type;
typedef enum rocblas_algorithm algorithm_kind;
typedef rocblas_handle handle;

#define ROCBLAS_FUNCTIONS(F)                                                                       \
    F(status, rocblas_create_handle, (handle * out), (out))                                        \
    F(status, rocblas_destroy_handle, (handle h), (h))                                             \
    F(status, rocblas_set_stream, (handle h, void *stream), (h, stream))                           \
    F(status, rocblas_set_workspace, (handle h, void *at, size_t bytes), (h, at, bytes))           \
    F(status, rocblas_set_atomics_mode, (handle h, enum rocblas_atomics mode), (h, mode))          \
    F(status, rocblas_get_version_string, (char *to, size_t bytes), (to, bytes))                   \
    F(status, rocblas_gemm_ex,                                                                     \
      (handle h, operation a_operation, operation b_operation, int32_t m, int32_t n, int32_t k,    \
       const void *alpha, const void *a, type a_type, int32_t a_leading, const void *b,            \
       type b_type, int32_t b_leading, const void *beta, const void *c, type c_type,               \
       int32_t c_leading, void *d, type d_type, int32_t d_leading, type compute_type,              \
       algorithm_kind algorithm, int32_t solution, uint32_t flags),                                \
      (h, a_operation, b_operation, m, n, k, alpha, a, a_type, a_leading, b, b_type, b_leading,    \
       beta, c, c_type, c_leading, d, d_type, d_leading, compute_type, algorithm, solution,        \
       flags))

/* That of the HIP runtime that the program links: another one would open a second runtime, which
 * does not know our streams.  The last name is that of PyTorch's packages. */
#if HIP_VERSION_MAJOR >= 7
#define FILES "librocblas.so.5 librocblas.so"
#elif HIP_VERSION_MAJOR == 6
#define FILES "librocblas.so.4 librocblas.so"
#else
#define FILES "librocblas.so.3 librocblas.so.0 librocblas.so"
#endif
LIBRARY_DEFINE("rocBLAS", FILES, NULL, ROCBLAS_FUNCTIONS)

enum status rocblas_load(void)
{
    TRY(library_open(&library));
    return STATUS_OK;
}
