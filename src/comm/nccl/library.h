/* library.h (comm/nccl) -- the functions of NCCL or RCCL that communicator.c calls.
 *
 * nccl_load.c defines them: they forward to the library, which dlopen finds at run time.  The tests
 * link a stub instead. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#if defined(GPU_HIP)
#include <rccl/rccl.h>
typedef hipStream_t nccl_stream;
#define NCCL_TITLE "RCCL"
#define NCCL_FILE  "librccl.so.1 librccl.so" /* the latter in PyTorch's packages */
#else
#include <nccl.h>
typedef cudaStream_t nccl_stream;
#define NCCL_TITLE "NCCL"
#define NCCL_FILE  "libnccl.so.2"
#endif

/* UNSUPPORTED: it is not installed. */
enum status library_open_nccl(void);

/* LIST of base/library.h. */
#define NCCL_FUNCTIONS(F)                                                                          \
    F(ncclResult_t, ncclGetVersion, (int *version), (version))                                     \
    F(const char *, ncclGetErrorString, (ncclResult_t result), (result))                           \
    F(const char *, ncclGetLastError, (ncclComm_t comm), (comm))                                   \
    F(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * out), (out))                                  \
    F(ncclResult_t, ncclCommInitRankConfig,                                                        \
      (ncclComm_t * out, int size, ncclUniqueId id, int rank, ncclConfig_t *config),               \
      (out, size, id, rank, config))                                                               \
    F(ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))                                    \
    F(ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))                                      \
    F(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error), (comm, error)) \
    F(ncclResult_t, ncclCommRegister,                                                              \
      (const ncclComm_t comm, void *at, size_t bytes, void **handle), (comm, at, bytes, handle))   \
    F(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle), (comm, handle))     \
    F(ncclResult_t, ncclGroupStart, (void), ())                                                    \
    F(ncclResult_t, ncclGroupEnd, (void), ())                                                      \
    F(ncclResult_t, ncclAllGather,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
       nccl_stream stream),                                                                        \
      (from, to, count, type, comm, stream))                                                       \
    F(ncclResult_t, ncclReduceScatter,                                                             \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, nccl_stream stream),                                                       \
      (from, to, count, type, op, comm, stream))                                                   \
    F(ncclResult_t, ncclAllReduce,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, nccl_stream stream),                                                       \
      (from, to, count, type, op, comm, stream))                                                   \
    F(ncclResult_t, ncclBroadcast,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
       nccl_stream stream),                                                                        \
      (from, to, count, type, root, comm, stream))                                                 \
    F(ncclResult_t, ncclSend,                                                                      \
      (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
       nccl_stream stream),                                                                        \
      (from, count, type, peer, comm, stream))                                                     \
    F(ncclResult_t, ncclRecv,                                                                      \
      (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                     \
       nccl_stream stream),                                                                        \
      (to, count, type, peer, comm, stream))
