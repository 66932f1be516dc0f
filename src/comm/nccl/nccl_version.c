// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/text.h"
#include "comm/nccl/library.h"
#include "comm/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

/* 2.22 aborts communicators together (communicator_abort_all), according to its release notes:
 * "Support ncclGroupStart/End for ncclCommAbort/Destroy".  RCCL has that from ROCm 6.4 on.  NCCL
 * 2.26 can order the transfers of several communicators (order_launches): before, those could
 * deadlock (its user guide, "Using multiple NCCL communicators concurrently"). */
#if defined(GPU_HIP)
enum { MIN_MAJOR = 2, MIN_MINOR = 22 };
const char nccl_queues_variable[] = "GPU_MAX_HW_QUEUES";
#else
enum { MIN_MAJOR = 2, MIN_MINOR = 26 };
const char nccl_queues_variable[] = "CUDA_DEVICE_MAX_CONNECTIONS";
#endif
#define LAUNCH_ORDER "NCCL_LAUNCH_ORDER_IMPLICIT"

/* Each group has communicators and streams of its own (nccl.h).  NCCL then requires that all ranks
 * launch their kernels in the same order, which the variable makes it ensure.  With the launch
 * events of CUDA 12.3 a kernel waits until the one before it has begun.  Without them, in RCCL and
 * in builds of NCCL with an earlier CUDA 12, it waits until that one has ended (getImplicitOrder in
 * its enqueue.cc): a ring or a pipeline, which posts receives before its sends, would never end.  A
 * program built with CUDA 12 may open such an NCCL: its file's name does not tell. */
#if defined(CUDART_VERSION) && CUDART_VERSION >= 13000
static void order_launches(void) { setenv(LAUNCH_ORDER, "1", 0); }
#else
static void order_launches(void)
{
    const char *set = getenv(LAUNCH_ORDER);
    if (set && strcmp(set, "0") != 0 && log_rank() <= 0)
        log_line(LOG_WARN,
                 LAUNCH_ORDER "=%s is ignored: " NCCL_TITLE
                              " could run one transfer after the other, so that rings and "
                              "pipelines hang",
                 set);
    setenv(LAUNCH_ORDER, "0", 1);
}
#endif

/* NVLink SHARP (NVLS) may add in another order in each call (NCCL's issues 1497 and 2360 on
 * GitHub).  AMD's GPUs have nothing like it. */
void nccl_request_fixed_order(void) { setenv("NCCL_NVLS_ENABLE", "0", 0); }

struct nccl_version {
    int major, minor, patch;
};

static enum status read_version(struct nccl_version *out)
{
    int version = 0;
    order_launches(); /* before the library reads its environment */
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
