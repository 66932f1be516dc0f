// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/text.h"
#include "comm/nccl/library.h"
#include "comm/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

/* 2.22 aborts communicators together (communicator_abort_all), according to its release notes:
 * "Support ncclGroupStart/End for ncclCommAbort/Destroy".  RCCL has that from ROCm 6.4 on. */
enum { MIN_MAJOR = 2, MIN_MINOR = 22 };
const char nccl_title[] = NCCL_TITLE;
#if defined(GPU_HIP)
const char nccl_queues_variable[] = "GPU_MAX_HW_QUEUES";
const int nccl_gpu_queues = AMD_GPU_QUEUES;
const int nccl_max_queues = RCCL_HARDWARE_QUEUES, nccl_library_streams = RCCL_STREAMS;
#else
const char nccl_queues_variable[] = "CUDA_DEVICE_MAX_CONNECTIONS";
const int nccl_gpu_queues = 0;
const int nccl_max_queues = NCCL_HARDWARE_QUEUES, nccl_library_streams = NCCL_STREAMS;
#endif

void nccl_warn_of_amd_queues(int streams, struct text *out)
{
    if (streams + AMD_OTHER_QUEUES <= AMD_GPU_QUEUES) return;
    text_addf(
        out,
        "a rank of this pipeline opens up to %d hardware queues, and an AMD GPU runs %d: it may "
        "time-slice them, which is slow. If the kernel logs \"Runlist is getting oversubscribed\", "
        "remove one of HSDP replicas, FSDP, context or tensor parallelism from this pipeline run",
        streams + AMD_OTHER_QUEUES, AMD_GPU_QUEUES);
}

#define LAUNCH_ORDER "NCCL_LAUNCH_ORDER_IMPLICIT"

/* Each group has communicators and streams of its own (nccl.h).  All ranks issue their transfers in
 * the same order, but a GPU may begin them in another.  Transfers cannot block each other while all
 * transfers that wait for another rank fit on the GPU's multiprocessors.  The variable makes each
 * transfer wait until all that the host issued before have begun (ncclLaunchPrepare in NCCL's
 * enqueue.cc), or, without the launch events of CUDA 12.3 and in RCCL, until they have ended.  One
 * that waits behind another of its own group then holds up all groups: tensor parallelism would
 * wait for FSDP's reduce-scatters, which is slow, and a stage that sends several microbatches
 * before the next stage receives them would hang. */
void nccl_set_launch_order(bool has_pipeline)
{
    const char *set = getenv(LAUNCH_ORDER);
    bool is_ignored = set && strcmp(set, "0") != 0 && has_pipeline;
    if (is_ignored && log_rank() <= 0)
        log_line(LOG_WARN,
                 LAUNCH_ORDER "=%s is ignored: with it a transfer of one group holds up those of "
                              "all others, so that a pipeline would hang",
                 set);
    setenv(LAUNCH_ORDER, "0", has_pipeline);
}

/* NVLink SHARP (NVLS) may add in another order in each call (NCCL's issues 1497 and 2360 on
 * GitHub).  AMD's GPUs have nothing like it. */
void nccl_request_fixed_order(void) { setenv("NCCL_NVLS_ENABLE", "0", 0); }

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
