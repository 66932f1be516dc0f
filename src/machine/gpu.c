// SPDX-License-Identifier: Apache-2.0
#include "machine/gpu.h"

#if LLAMERO_GPU
#include "backends/gpu/gpu.h"
#include "base/byte_size.h"
#include "base/log.h"
#include "comm/nccl/nccl.h"
#include "comm/nccl/p2p_channel.h"
#include "comm/staged/staged.h"
#include "machine/gpu_list.h"
#include "machine/node.h"
#include "tensor/hardware.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

/* The backend's symbols: gpu_open etc., or the emulated ones in a program for tests. */
#define BACKEND_JOIN(prefix, name) prefix##_##name
#define BACKEND_OF(prefix, name)   BACKEND_JOIN(prefix, name)
#define BACKEND(name)              BACKEND_OF(LLAMERO_GPU_PREFIX, name)

const char *const gpu_backend = LLAMERO_GPU_NAME;

static void set_default(const char *variable, int value)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%d", value);
    setenv(variable, digits, 0);
}

/* CUDA maps streams to 8 hardware queues by default, HIP those of one priority to 4.  With more
 * streams one can wait behind another, which may wait for a rank (comm/nccl), and since December
 * 2025 HIP moves streams between queues (github.com/ROCm/rocm-systems/pull/1958).  HIP before
 * ROCm 7 refuses an allocation of more than 85 % of a device's memory, as an arena may be. */
void gpu_machine_prepare_driver(void)
{
    set_default("CUDA_DEVICE_MAX_CONNECTIONS", NCCL_HARDWARE_QUEUES);
    set_default("GPU_MAX_HW_QUEUES", RCCL_HARDWARE_QUEUES);
    set_default("DEBUG_HIP_DYNAMIC_QUEUES", 0);
    set_default("GPU_SINGLE_ALLOC_PERCENT", 100);
}

static enum status count_devices(int *count)
{
    gpu_machine_prepare_driver();
    return BACKEND(count)(count);
}

int gpu_machine_count(void)
{
    int count = 0;
    return count_devices(&count) ? 0 : count;
}

int gpu_machine_numa_node(int index)
{
    char id[GPU_BUS_ID_BYTES];
    return BACKEND(bus_id)(index, id) ? -1 : node_of_pci_device("/sys/bus/pci/devices", id);
}

void gpu_machine_add_visibility(struct text *out)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                        "ROCR_VISIBLE_DEVICES"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value) text_addf(out, "; %s=\"%s\"", names[i], value);
    }
}

void gpu_machine_explain_none(struct text *out)
{
    int count;
    text_adds(out, "no GPU found");
    if (count_devices(&count)) text_addf(out, ": %s", status_message());
    gpu_machine_add_visibility(out);
}

static enum status look_up_peak(struct machine *m, int index)
{
    struct gpu_description gpu;
    TRY(BACKEND(describe)(index, &gpu));
    m->hardware = hardware_find(gpu.name);
    if (m->hardware)
        m->peak_flops = m->hardware->bf16_flops;
    else if (m->world.rank == 0)
        log_line(LOG_WARN, "%s: unknown peak FLOP/s: set metrics.peak_flops to report MFU",
                 gpu.name);
    return STATUS_OK;
}

static enum status fail_without_gpu(void)
{
    struct text why = {0};
    gpu_machine_explain_none(&why);
    enum status st = FAILURE(DEVICE, "device.kind = \"%s\": %s", gpu_backend, why.data);
    text_release(&why);
    return st;
}

enum status gpu_machine_open(struct machine *m, const struct device_config *c, int cores, int local)
{
    struct gpu_list list;
    int count = gpu_machine_count();
    const char *gpus = c->gpus ? c->gpus : "";
    if (!count && !gpus[0]) TRY(fail_without_gpu());
    TRY(gpu_list_read(gpus, count, &list));
    int index = list.index[local % list.count];
    m->ops = &BACKEND(ops);
    TRY(BACKEND(open)(&m->queue, index));
    m->queue->num_threads = c->threads ? (int)c->threads : cores;
    /* As cpu_queue_open does: for every parallel loop that sets no number of its own, such as the
     * one that zeroes pinned memory. */
    omp_set_num_threads(m->queue->num_threads);
    BACKEND(allow_nondeterministic)(m->queue, !c->deterministic);
    BACKEND(limit_attention)(m->queue, (size_t)c->attention_bytes);
    TRY(look_up_peak(m, index));
    return STATUS_OK;
}

static enum status wrap_staged(struct comm *c, const char *name, enum comm_use use, void *queue)
{
    (void)name, (void)use;
    return staged_wrap(c, queue);
}

static void warn_of_staging(const struct machine *m, const char *why)
{
    if (m->world.rank) return;
    log_line(LOG_WARN,
             "tensors travel between GPUs through host memory, at a fraction of NCCL's speed: %s",
             why);
}

#if LLAMERO_NCCL
enum { TRANSFER_TIMEOUT_S = 1800 }; /* then the missing ranks count as failed */

static enum status wrap_nccl(struct comm *c, const char *name, enum comm_use use, void *nccl)
{
    return nccl_wrap(c, nccl, name, use);
}

static enum status check_own_gpus(const struct machine *m)
{
    struct nccl_pair same;
    TRY(nccl_same_device(&m->world, m->queue, &same));
    if (same.first >= 0)
        FAIL(CONFIG, "ranks %d and %d share a GPU, which NCCL does not support", same.first,
             same.second);
    return STATUS_OK;
}

/* NCCL requires that every rank has a GPU of its own and that all ranks find the library. */
static enum status can_use_nccl(const struct machine *m, enum device_comm comm, bool *usable)
{
    *usable = false;
    if (comm == DEVICE_COMM_staged) return STATUS_OK;
    enum status st = check_own_gpus(m);
    if (!st) st = comm_agree(&m->world, nccl_load());
    if (st && comm == DEVICE_COMM_nccl) return status_prefix(st, "device.comm = \"nccl\"");
    if (st && st != STATUS_CONFIG && st != STATUS_UNSUPPORTED) return st;
    *usable = !st;
    if (st) warn_of_staging(m, status_message());
    return STATUS_OK;
}

/* In the steady state of 1F1B a receive of each direction waits during nearly all compute, and no
 * schedule has more receives that wait (schedule.h).  A GEMM with a block for every multiprocessor
 * would run those that find none after all others.  Two sends may occupy as many more until their
 * receives are posted; leaving those, too, would slow down every GEMM for a short overlap. */
enum { PIPELINE_BLOCKS = 2 * P2P_CHANNEL_BLOCKS };

void gpu_machine_share(const struct machine *m)
{
    if (m->mesh.degree[AXIS_pp] > 1) BACKEND(leave_multiprocessors)(m->queue, PIPELINE_BLOCKS);
}

enum status gpu_machine_wrap_comms(struct machine *m, const struct device_config *c)
{
    bool use_nccl;
    if (m->world.size == 1) return STATUS_OK;
    if (c->deterministic) nccl_request_fixed_order();
    if (c->comm != DEVICE_COMM_staged) nccl_set_launch_order(m->mesh.degree[AXIS_pp] > 1);
    TRY(can_use_nccl(m, c->comm, &use_nccl));
    log_line(LOG_INFO, "tensors travel between GPUs by %s",
             use_nccl ? nccl_title : "staging in host memory");
    if (!use_nccl) return groups_wrap_device(&m->groups, wrap_staged, m->queue);
    TRY(nccl_open((struct nccl **)&m->carrier, m->queue, TRANSFER_TIMEOUT_S));
    TRY(groups_wrap_device(&m->groups, wrap_nccl, m->carrier));
    gpu_machine_share(m);
    return STATUS_OK;
}
#else
void gpu_machine_share(const struct machine *m) { (void)m; }

enum status gpu_machine_wrap_comms(struct machine *m, const struct device_config *c)
{
    if (m->world.size == 1) return STATUS_OK;
    if (c->comm == DEVICE_COMM_nccl)
        FAIL(UNSUPPORTED, "device.comm = \"nccl\": this program was built without NCCL");
    if (c->comm == DEVICE_COMM_auto) warn_of_staging(m, "this program was built without NCCL");
    TRY(groups_wrap_device(&m->groups, wrap_staged, m->queue));
    return STATUS_OK;
}
#endif

void gpu_machine_close(struct machine *m)
{
#if LLAMERO_NCCL
    nccl_close(m->carrier);
#endif
    m->carrier = NULL;
    BACKEND(close)(m->queue);
    m->queue = NULL;
}

void gpu_machine_describe(int index, struct text *out)
{
    struct gpu_description gpu;
    if (BACKEND(describe)(index, &gpu))
        text_addf(out, "GPU %d: %s", index, status_message());
    else
        text_addf(out, "%s, %s, %s free", gpu.name, byte_size_format((double)gpu.bytes).text,
                  byte_size_format((double)gpu.free_bytes).text);
}

void gpu_machine_tune(const struct machine *m, const struct tuning_files *files)
{
    BACKEND(tune)(m->queue, files);
}

enum status gpu_machine_check_attention(const struct machine *m)
{
    TRY(BACKEND(check_attention)(m->queue));
    return STATUS_OK;
}

#if LLAMERO_NCCL
enum { NUM_LIBRARIES = GPU_LIBRARY_COUNT + 1 };

static enum status describe_nccl(struct text *out)
{
    TRY(nccl_describe(out));
    return STATUS_OK;
}

enum status gpu_machine_check_nccl(const struct machine *m)
{
    TRY(nccl_self_test(m->queue));
    return STATUS_OK;
}
#else
enum { NUM_LIBRARIES = GPU_LIBRARY_COUNT };

static enum status describe_nccl(struct text *out)
{
    (void)out;
    return STATUS_OK;
}

enum status gpu_machine_check_nccl(const struct machine *m)
{
    (void)m;
    FAIL(UNSUPPORTED, "this program was built without NCCL");
}
#endif

bool gpu_machine_library(int i, const char **use, struct text *out, enum status *st)
{
    static const char *const uses[] = {"GEMMs", "attention", "transfers between GPUs"};
    if (i >= NUM_LIBRARIES) return false;
    *use = uses[i];
    *st = i < GPU_LIBRARY_COUNT ? BACKEND(library)((enum gpu_library)i, out) : describe_nccl(out);
    return true;
}
#else
/* Not called: machine.c checks gpu_backend first. */
const char *const gpu_backend = NULL;

int gpu_machine_count(void) { return 0; }

void gpu_machine_prepare_driver(void) {}
int gpu_machine_numa_node(int index) { return (void)index, -1; }

enum status gpu_machine_open(struct machine *m, const struct device_config *c, int cores, int local)
{
    (void)m, (void)c, (void)cores, (void)local;
    FAIL(UNSUPPORTED, "this program was built without a GPU backend");
}

enum status gpu_machine_wrap_comms(struct machine *m, const struct device_config *c)
{
    (void)m, (void)c;
    return STATUS_OK;
}

void gpu_machine_close(struct machine *m) { (void)m; }

void gpu_machine_describe(int index, struct text *out) { (void)index, (void)out; }

void gpu_machine_share(const struct machine *m) { (void)m; }

void gpu_machine_tune(const struct machine *m, const struct tuning_files *files)
{
    (void)m, (void)files;
}

void gpu_machine_explain_none(struct text *out) { (void)out; }

void gpu_machine_add_visibility(struct text *out) { (void)out; }

bool gpu_machine_library(int i, const char **use, struct text *out, enum status *st)
{
    (void)i, (void)use, (void)out, (void)st;
    return false;
}

enum status gpu_machine_check_attention(const struct machine *m)
{
    (void)m;
    return STATUS_OK;
}

enum status gpu_machine_check_nccl(const struct machine *m)
{
    (void)m;
    return STATUS_OK;
}
#endif
