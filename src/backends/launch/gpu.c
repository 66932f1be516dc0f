// SPDX-License-Identifier: Apache-2.0
#include "backends/launch/gpu.h"

#if LLAMERO_GPU
#include "backends/gpu/gpu.h"
#include "base/log.h"
#include "comms/staged/staged.h"
#include "tensor/hardware.h"
#if LLAMERO_NCCL
#include "comms/nccl/nccl.h"
#endif

#include <stdlib.h>
#include <string.h>

/* The backend's functions: gpu_open, or the emulator's in a program for tests. */
#define DOOR_JOIN(prefix, name) prefix##_##name
#define DOOR_OF(prefix, name)   DOOR_JOIN(prefix, name)
#define DOOR(name)              DOOR_OF(LLAMERO_GPU_DOOR, name)

const char *const gpu_backend = LLAMERO_GPU_NAME;

/* CUDA has eight ways to a device: of more streams than that one may wait behind another, which
 * waits for a rank (comms/nccl).  The variable is read when the driver is first used. */
static enum status count_devices(int *count)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    return DOOR(count)(count);
}

int gpu_machine_count(void)
{
    int count = 0;
    return count_devices(&count) ? 0 : count;
}

static enum status find_peak(struct machine *m, int index)
{
    struct gpu_description is;
    TRY(DOOR(describe)(index, &is));
    const struct hardware *row = hardware_named(is.name);
    if (row)
        m->peak_flops = row->bf16_flops;
    else if (m->world.rank == 0)
        log_line(LOG_WARN, "%s is not in the table of peaks: set metrics.peak_flops for MFU",
                 is.name);
    return STATUS_OK;
}

enum status gpu_machine_open(struct machine *m, const struct device_config *c, int local)
{
    int count;
    TRY(count_devices(&count));
    if (!count) FAIL(DEVICE, "device.kind = \"%s\": there is none here", gpu_backend);
    m->ops = &DOOR(ops);
    TRY(DOOR(open)(&m->on, local % count));
    DOOR(any_order)(m->on, !c->deterministic);
    TRY(find_peak(m, local % count));
    return STATUS_OK;
}

static enum status carry_staged(struct comm *c, const char *name, void *on)
{
    (void)name;
    return staged_wrap(c, on);
}

#if LLAMERO_NCCL
enum { MOST_SECONDS = 1800 }; /* that a transfer may take before its ranks are given up */

static enum status carry_nccl(struct comm *c, const char *name, void *nccl)
{
    return nccl_wrap(c, nccl, name);
}

/* Whether NCCL can carry: not where two ranks have one device. */
static enum status nccl_fits(const struct machine *m, enum device_comm asked, bool *fits)
{
    struct nccl_pair same;
    TRY(nccl_same_device(&m->world, m->on, &same));
    *fits = same.first < 0 && asked != DEVICE_COMM_staged;
    if (same.first >= 0 && asked == DEVICE_COMM_nccl)
        FAIL(CONFIG,
             "device.comm = \"nccl\": ranks %d and %d have the same GPU, which NCCL does not bear: "
             "\"staged\" does",
             same.first, same.second);
    return STATUS_OK;
}

enum status gpu_machine_carry(struct machine *m, const struct device_config *c)
{
    bool fits;
    if (m->world.size == 1) return STATUS_OK;
    TRY(nccl_fits(m, c->comm, &fits));
    log_line(LOG_INFO, "tensors go between GPUs by %s", fits ? "NCCL" : "way of the host");
    if (!fits) return groups_carry(&m->groups, carry_staged, m->on);
    TRY(nccl_open((struct nccl **)&m->carrier, m->on, MOST_SECONDS));
    TRY(groups_carry(&m->groups, carry_nccl, m->carrier));
    return STATUS_OK;
}
#else
enum status gpu_machine_carry(struct machine *m, const struct device_config *c)
{
    if (m->world.size == 1) return STATUS_OK;
    if (c->comm == DEVICE_COMM_nccl)
        FAIL(UNSUPPORTED, "device.comm = \"nccl\": this program was built without NCCL");
    TRY(groups_carry(&m->groups, carry_staged, m->on));
    return STATUS_OK;
}
#endif

void gpu_machine_close(struct machine *m)
{
#if LLAMERO_NCCL
    nccl_close(m->carrier);
#endif
    m->carrier = NULL;
    DOOR(close)(m->on);
    m->on = NULL;
}

void gpu_machine_describe(int index, struct text *out)
{
    struct gpu_description is;
    if (DOOR(describe)(index, &is))
        text_addf(out, "GPU %d: %s", index, status_message());
    else
        text_addf(out, "%s, %.1f GiB, %.1f free", is.name, (double)is.bytes / (1 << 30),
                  (double)is.free_bytes / (1 << 30));
}

void gpu_machine_tune(const struct machine *m, const char *path) { DOOR(tune)(m->on, path); }
#else
/* Not called: machine.c asks gpu_backend first. */
const char *const gpu_backend = NULL;

int gpu_machine_count(void) { return 0; }

enum status gpu_machine_open(struct machine *m, const struct device_config *c, int local)
{
    (void)m, (void)c, (void)local;
    FAIL(UNSUPPORTED, "this program was built without a GPU backend");
}

enum status gpu_machine_carry(struct machine *m, const struct device_config *c)
{
    (void)m, (void)c;
    return STATUS_OK;
}

void gpu_machine_close(struct machine *m) { (void)m; }

void gpu_machine_describe(int index, struct text *out) { (void)index, (void)out; }

void gpu_machine_tune(const struct machine *m, const char *path) { (void)m, (void)path; }
#endif
