/* Defines the functions of hipBLASLt that hipblaslt_gemm.c calls; they forward to the library,
 * which dlopen finds at run time.  The tests link a stub instead. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/hipblaslt.h"

#include "backends/gpu/runtime.h"
#include "base/library.h"

typedef enum hipblaslt_status status;
typedef hipblaslt_handle handle;
typedef hipblaslt_desc desc;
typedef hipblaslt_layout layout;
typedef hipblaslt_pref pref;
typedef const struct hipblaslt_algorithm *algorithm_pointer;

#define HIPBLASLT_FUNCTIONS(F)                                                                     \
    F(status, hipblasLtCreate, (handle * out), (out))                                              \
    F(status, hipblasLtDestroy, (handle lt), (lt))                                                 \
    F(status, hipblasLtGetVersion, (handle lt, int *version), (lt, version))                       \
    F(status, hipblasLtMatmulDescCreate,                                                           \
      (desc * out, enum hipblaslt_compute compute, enum hipblaslt_type scale),                     \
      (out, compute, scale))                                                                       \
    F(status, hipblasLtMatmulDescDestroy, (desc m), (m))                                           \
    F(status, hipblasLtMatmulDescSetAttribute,                                                     \
      (desc m, enum hipblaslt_desc_attribute name, const void *value, size_t bytes),               \
      (m, name, value, bytes))                                                                     \
    F(status, hipblasLtMatrixLayoutCreate,                                                         \
      (layout * out, enum hipblaslt_type type, uint64_t rows, uint64_t columns, int64_t leading),  \
      (out, type, rows, columns, leading))                                                         \
    F(status, hipblasLtMatrixLayoutDestroy, (layout l), (l))                                       \
    F(status, hipblasLtMatmulPreferenceCreate, (pref * out), (out))                                \
    F(status, hipblasLtMatmulPreferenceDestroy, (pref p), (p))                                     \
    F(status, hipblasLtMatmulPreferenceSetAttribute,                                               \
      (pref p, enum hipblaslt_pref_attribute name, const void *value, size_t bytes),               \
      (p, name, value, bytes))                                                                     \
    F(status, hipblasLtMatmulAlgoGetHeuristic,                                                     \
      (handle lt, desc m, layout a, layout b, layout c, layout d, pref p, int max,                 \
       struct hipblaslt_result *results, int *count),                                              \
      (lt, m, a, b, c, d, p, max, results, count))                                                 \
    F(status, hipblasLtMatmul,                                                                     \
      (handle lt, desc m, const void *alpha, const void *a, layout a_layout, const void *b,        \
       layout b_layout, const void *beta, const void *c, layout c_layout, void *d,                 \
       layout d_layout, algorithm_pointer algorithm, void *workspace, size_t workspace_bytes,      \
       void *stream),                                                                              \
      (lt, m, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,          \
       workspace, workspace_bytes, stream))

/* That of the HIP runtime that the program links: another one would open a second runtime, which
 * does not know our streams.  The last name is that of PyTorch's packages. */
#if HIP_VERSION_MAJOR >= 7
#define FILES "libhipblaslt.so.1 libhipblaslt.so"
#else
#define FILES "libhipblaslt.so.0 libhipblaslt.so"
#endif
LIBRARY_DEFINE("hipBLASLt", FILES, NULL, HIPBLASLT_FUNCTIONS)

enum status hipblaslt_load(void)
{
    TRY(library_open(&library));
    return STATUS_OK;
}
