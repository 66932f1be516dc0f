/* Defines the functions of cuBLASLt that this folder calls; they forward to the library, which
 * dlopen finds at run time.  The tests link a stub instead. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cublaslt.h"
#include "base/library.h"

#define STRING_OF(x)           #x
#define VERSIONED(so, version) so STRING_OF(version)

typedef cublasLtMatmulDesc_t matmul_desc;
typedef cublasLtMatrixLayout_t layout;
typedef cublasLtMatmulPreference_t preference;

#define CUBLASLT_FUNCTIONS(F)                                                                      \
    F(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * out), (out))                             \
    F(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t lt), (lt))                                \
    F(const char *, cublasLtGetStatusString, (cublasStatus_t status), (status))                    \
    F(size_t, cublasLtGetVersion, (void), ())                                                      \
    F(cublasStatus_t, cublasLtMatmulDescCreate,                                                    \
      (matmul_desc * out, cublasComputeType_t compute, cudaDataType_t scale),                      \
      (out, compute, scale))                                                                       \
    F(cublasStatus_t, cublasLtMatmulDescDestroy, (matmul_desc m), (m))                             \
    F(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                              \
      (matmul_desc m, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes),       \
      (m, name, value, bytes))                                                                     \
    F(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                  \
      (layout * out, cudaDataType type, uint64_t rows, uint64_t columns, int64_t leading),         \
      (out, type, rows, columns, leading))                                                         \
    F(cublasStatus_t, cublasLtMatrixLayoutDestroy, (layout l), (l))                                \
    F(cublasStatus_t, cublasLtMatmulPreferenceCreate, (preference * out), (out))                   \
    F(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (preference p), (p))                        \
    F(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                        \
      (preference p, cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes),  \
      (p, name, value, bytes))                                                                     \
    F(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                              \
      (cublasLtHandle_t lt, matmul_desc m, layout a, layout b, layout c, layout d, preference p,   \
       int max, cublasLtMatmulHeuristicResult_t *results, int *count),                             \
      (lt, m, a, b, c, d, p, max, results, count))                                                 \
    F(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                     \
      (cublasLtHandle_t lt, matmul_desc m, layout a, layout b, layout c, layout d,                 \
       const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulHeuristicResult_t *result),            \
      (lt, m, a, b, c, d, algorithm, result))                                                      \
    F(cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,                                        \
      (const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t name,           \
       void *value, size_t bytes, size_t *written),                                                \
      (algorithm, name, value, bytes, written))                                                    \
    F(cublasStatus_t, cublasLtMatmul,                                                              \
      (cublasLtHandle_t lt, matmul_desc m, const void *alpha, const void *a, layout a_layout,      \
       const void *b, layout b_layout, const void *beta, const void *c, layout c_layout, void *d,  \
       layout d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,                    \
       size_t workspace_bytes, cudaStream_t stream),                                               \
      (lt, m, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,          \
       workspace, workspace_bytes, stream))

LIBRARY_DEFINE("cuBLASLt", VERSIONED("libcublasLt.so.", CUBLAS_VER_MAJOR), NULL, CUBLASLT_FUNCTIONS)

enum status cublaslt_load(void)
{
    TRY(library_open(&library));
    return STATUS_OK;
}
