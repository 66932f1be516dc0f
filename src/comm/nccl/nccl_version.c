// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "comm/nccl/library.h"
#include "comm/nccl/nccl.h"

/* 2.22 aborts communicators together (communicator_abort_all), according to its release notes:
 * "Support ncclGroupStart/End for ncclCommAbort/Destroy".  RCCL has that from ROCm 6.4 on.  NCCL
 * 2.26 orders the transfers of several communicators (nccl_load.c): before, those could deadlock
 * (its user guide, "Using multiple NCCL communicators concurrently"). */
#if defined(GPU_HIP)
enum { MIN_MAJOR = 2, MIN_MINOR = 22 };
#else
enum { MIN_MAJOR = 2, MIN_MINOR = 26 };
#endif

struct nccl_version {
    int major, minor, patch;
};

static enum status read_version(struct nccl_version *out)
{
    int version = 0;
    TRY(library_open_nccl());
    if (ncclGetVersion(&version)) FAIL(COMM, NCCL_TITLE " does not report its version");
    *out = (struct nccl_version){version / 10000, version / 100 % 100, version % 100};
    if (out->major < MIN_MAJOR || (out->major == MIN_MAJOR && out->minor < MIN_MINOR))
        FAIL(UNSUPPORTED,
             NCCL_TITLE " %d.%d.%d is too old: install %d.%d or later, or add its folder to "
                        "LD_LIBRARY_PATH",
             out->major, out->minor, out->patch, MIN_MAJOR, MIN_MINOR);
    return STATUS_OK;
}

enum status nccl_load(void)
{
    struct nccl_version version;
    TRY(read_version(&version));
    return STATUS_OK;
}

enum status nccl_describe(struct text *out)
{
    struct nccl_version v;
    TRY(read_version(&v));
    text_addf(out, NCCL_TITLE " %d.%d.%d", v.major, v.minor, v.patch);
    return STATUS_OK;
}
