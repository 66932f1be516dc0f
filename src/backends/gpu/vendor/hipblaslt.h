/* hipblaslt.h -- the part of hipBLASLt's interface that hipblaslt_gemm.c uses, declared here so
 * that the program builds without its headers, which are C++.
 *
 * Values and layouts are those of hipBLASLt 0.6 to 1.x (ROCm 6 and 7).  What changed between them
 * is not used: pointer mode 1, which was a device vector and is now device memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum hipblaslt_status {
    HIPBLASLT_SUCCESS = 0,
    HIPBLASLT_INVALID_VALUE = 3,
    HIPBLASLT_EXECUTION_FAILED = 5,
    HIPBLASLT_INTERNAL_ERROR = 6,
    HIPBLASLT_NOT_SUPPORTED = 7,
};
enum hipblaslt_operation { HIPBLASLT_OP_N = 111, HIPBLASLT_OP_T = 112 };
enum hipblaslt_compute { HIPBLASLT_COMPUTE_32F = 2 };
enum hipblaslt_type { HIPBLASLT_R_32F = 0, HIPBLASLT_R_16BF = 14 }; /* as hipDataType */
enum hipblaslt_desc_attribute { HIPBLASLT_DESC_TRANSA = 0, HIPBLASLT_DESC_TRANSB = 1 };
enum hipblaslt_pref_attribute { HIPBLASLT_PREF_MAX_WORKSPACE_BYTES = 1 };

typedef struct hipblaslt_context *hipblaslt_handle;
typedef struct hipblaslt_desc_data *hipblaslt_desc;
typedef struct hipblaslt_layout_data *hipblaslt_layout;
typedef struct hipblaslt_pref_data *hipblaslt_pref;
struct hipblaslt_algorithm {
    uint8_t data[16];
    size_t max_workspace;
};
struct hipblaslt_result {
    struct hipblaslt_algorithm algorithm;
    size_t workspace; /* bytes */
    enum hipblaslt_status state;
    float waves;
    int reserved[4];
};

/* hipblaslt_load.c, or the tests' stub.  Call before any function of the library.  UNSUPPORTED: it
 * is not installed, or lacks a function. */
enum status hipblaslt_load(void);

enum hipblaslt_status hipblasLtCreate(hipblaslt_handle *out);
enum hipblaslt_status hipblasLtDestroy(hipblaslt_handle lt);
enum hipblaslt_status hipblasLtGetVersion(hipblaslt_handle lt, int *version);
enum hipblaslt_status hipblasLtMatmulDescCreate(hipblaslt_desc *out, enum hipblaslt_compute compute,
                                                enum hipblaslt_type scale);
enum hipblaslt_status hipblasLtMatmulDescDestroy(hipblaslt_desc m);
enum hipblaslt_status hipblasLtMatmulDescSetAttribute(hipblaslt_desc m,
                                                      enum hipblaslt_desc_attribute name,
                                                      const void *value, size_t bytes);
enum hipblaslt_status hipblasLtMatrixLayoutCreate(hipblaslt_layout *out, enum hipblaslt_type type,
                                                  uint64_t rows, uint64_t columns, int64_t leading);
enum hipblaslt_status hipblasLtMatrixLayoutDestroy(hipblaslt_layout l);
enum hipblaslt_status hipblasLtMatmulPreferenceCreate(hipblaslt_pref *out);
enum hipblaslt_status hipblasLtMatmulPreferenceDestroy(hipblaslt_pref p);
enum hipblaslt_status hipblasLtMatmulPreferenceSetAttribute(hipblaslt_pref p,
                                                            enum hipblaslt_pref_attribute name,
                                                            const void *value, size_t bytes);
enum hipblaslt_status hipblasLtMatmulAlgoGetHeuristic(hipblaslt_handle lt, hipblaslt_desc m,
                                                      hipblaslt_layout a, hipblaslt_layout b,
                                                      hipblaslt_layout c, hipblaslt_layout d,
                                                      hipblaslt_pref p, int max,
                                                      struct hipblaslt_result *results, int *count);
enum hipblaslt_status hipblasLtMatmul(hipblaslt_handle lt, hipblaslt_desc m, const void *alpha,
                                      const void *a, hipblaslt_layout a_layout, const void *b,
                                      hipblaslt_layout b_layout, const void *beta, const void *c,
                                      hipblaslt_layout c_layout, void *d, hipblaslt_layout d_layout,
                                      const struct hipblaslt_algorithm *algorithm, void *workspace,
                                      size_t workspace_bytes, void *stream);
