// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_load.h"

#include "base/library.h"

#include <cudnn.h>

#define STRING_OF(x)           #x
#define VERSIONED(so, version) so STRING_OF(version)
#if CUDART_VERSION >= 13000
#define NVRTC "libnvrtc.so.13"
#else
#define NVRTC "libnvrtc.so.12"
#endif

typedef cudnnBackendDescriptor_t descriptor;
typedef cudnnBackendAttributeName_t attribute;
typedef cudnnBackendAttributeType_t attribute_type;

#define CUDNN_FUNCTIONS(F)                                                                         \
    F(size_t, cudnnGetVersion, (void), ())                                                         \
    F(const char *, cudnnGetErrorString, (cudnnStatus_t status), (status))                         \
    F(void, cudnnGetLastErrorString, (char *to, size_t bytes), (to, bytes))                        \
    F(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * out), (out))                                    \
    F(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))                               \
    F(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream),                  \
      (handle, stream))                                                                            \
    F(cudnnStatus_t, cudnnBackendCreateDescriptor,                                                 \
      (cudnnBackendDescriptorType_t type, descriptor * out), (type, out))                          \
    F(cudnnStatus_t, cudnnBackendDestroyDescriptor, (descriptor d), (d))                           \
    F(cudnnStatus_t, cudnnBackendFinalize, (descriptor d), (d))                                    \
    F(cudnnStatus_t, cudnnBackendSetAttribute,                                                     \
      (descriptor d, attribute name, attribute_type type, int64_t count, const void *values),      \
      (d, name, type, count, values))                                                              \
    F(cudnnStatus_t, cudnnBackendGetAttribute,                                                     \
      (descriptor d, attribute name, attribute_type type, int64_t max, int64_t * count,            \
       void *values),                                                                              \
      (d, name, type, max, count, values))                                                         \
    F(cudnnStatus_t, cudnnBackendExecute,                                                          \
      (cudnnHandle_t handle, descriptor plan, descriptor pack), (handle, plan, pack))

/* cuDNN compiles kernels with NVRTC, which it opens by name; without it no graph has a plan. */
#pragma GCC diagnostic ignored "-Wpedantic" /* a function that returns void */
LIBRARY_DEFINE("cuDNN", VERSIONED("libcudnn.so.", CUDNN_MAJOR), NVRTC, CUDNN_FUNCTIONS)

enum status cudnn_load(void)
{
    TRY(library_open(&library));
    return STATUS_OK;
}
