/* libcuda.c -- a stub of the CUDA driver, for machines that have the CUDA libraries but no driver.
 * It reports no device, but pretends to load what cuDNN compiles: so plans can be built, not run.
 */
// SPDX-License-Identifier: Apache-2.0

enum { DRIVER_OK = 0, DRIVER_NO_DEVICE = 100 };

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return DRIVER_NO_DEVICE;
}

/* Functions that return a handle of a loaded library, module or kernel. */
#define LOADED(X)                                                                                  \
    X(cuLibraryLoadData)                                                                           \
    X(cuLibraryGetKernel)                                                                          \
    X(cuLibraryGetModule)                                                                          \
    X(cuKernelGetFunction)                                                                         \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleLoadDataEx)                                                                          \
    X(cuModuleGetFunction)
#define X(name)                                                                                    \
    int name(void **out);                                                                          \
    int name(void **out)                                                                           \
    {                                                                                              \
        static char loaded;                                                                        \
        *out = &loaded;                                                                            \
        return DRIVER_OK;                                                                          \
    }
LOADED(X)
#undef X

/* Functions that cuDNN resolves when it starts; it ignores their results or never calls them. */
#define SILENT(X)                                                                                  \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxGetLimit)                                                                               \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceGetCount)                                                                            \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuDevicePrimaryCtxReset)                                                                     \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDriverGetVersion)                                                                          \
    X(cuFuncGetAttribute)                                                                          \
    X(cuFuncSetAttribute)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuKernelGetAttribute)                                                                        \
    X(cuKernelSetAttribute)                                                                        \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLibraryLoadFromFile)                                                                       \
    X(cuLibraryUnload)                                                                             \
    X(cuLinkAddData)                                                                               \
    X(cuLinkAddData_v2)                                                                            \
    X(cuLinkAddFile_v2)                                                                            \
    X(cuLinkComplete)                                                                              \
    X(cuLinkCreate)                                                                                \
    X(cuLinkCreate_v2)                                                                             \
    X(cuLinkDestroy)                                                                               \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuModuleGetGlobal_v2)                                                                        \
    X(cuModuleLoadFatBinary)                                                                       \
    X(cuModuleUnload)                                                                              \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                 \
    X(cuOccupancyMaxPotentialClusterSize)                                                          \
    X(cuStreamGetCtx)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuTensorMapEncodeIm2col)                                                                     \
    X(cuTensorMapEncodeTiled)
#define X(name)                                                                                    \
    int name(void);                                                                                \
    int name(void) { return DRIVER_OK; }
SILENT(X)
#undef X
