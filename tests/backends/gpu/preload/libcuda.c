/* A driver without a device, for machines that have CUDA's libraries and no driver: there is no
 * device, yet what cuDNN compiles is taken for loaded.  So plans can be made, and nothing run. */
// SPDX-License-Identifier: Apache-2.0

enum { DRIVER_OK = 0, DRIVER_NO_DEVICE = 100 };

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return DRIVER_NO_DEVICE;
}

/* Calls that give a handle of something loaded. */
#define LOADED(X)                                                                                  \
    X(cuLibraryLoadData)                                                                           \
    X(cuLibraryGetKernel)                                                                          \
    X(cuLibraryGetModule)                                                                          \
    X(cuKernelGetFunction)                                                                         \
    X(cuModuleLoadData)                                                                            \
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

/* What cuDNN looks for when it starts, and calls without wanting an answer, or not at all. */
#define SILENT(X)                                                                                  \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetLimit)                                                                               \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDriverGetVersion)                                                                          \
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
    X(cuLinkComplete)                                                                              \
    X(cuLinkCreate)                                                                                \
    X(cuLinkDestroy)                                                                               \
    X(cuOccupancyMaxPotentialClusterSize)                                                          \
    X(cuStreamGetCtx)
#define X(name)                                                                                    \
    int name(void);                                                                                \
    int name(void) { return DRIVER_OK; }
SILENT(X)
#undef X
