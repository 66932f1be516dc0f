// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.h"

#include "base/log.h"
#include "base/program.h"
#include "base/thread.h"
#include "comm/agreement.h"
#include "machine/cores.h"
#include "machine/cpu.h"
#include "machine/gpu.h"
#include "machine/launch.h"
#include "machine/peak.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "tensor/tuning.h"

#include <stdlib.h>
#include <string.h>

enum status machine_alone(struct machine *m)
{
    m->world = *comm_self();
    m->mesh = mesh_single_rank();
    TRY(groups_open(&m->groups, &m->mesh, &m->world));
    return STATUS_OK;
}

enum status machine_uses_gpu(const struct device_config *c, bool *gpu)
{
    const char *kind = device_kind_word(c->kind);
    bool any = c->kind == DEVICE_KIND_auto, cpu = c->kind == DEVICE_KIND_cpu;
    if (!any && !cpu && (!gpu_backend || strcmp(kind, gpu_backend)))
        FAIL(UNSUPPORTED,
             "device.kind = \"%s\": this program was built %s%s; rebuild with make %s=1", kind,
             gpu_backend ? "for " : "without it", gpu_backend ? gpu_backend : "",
             c->kind == DEVICE_KIND_hip ? "HIP" : "CUDA");
    *gpu = gpu_backend && !cpu;
    return STATUS_OK;
}

/* A driver that is too old for this program, for example, must not go unnoticed. */
static void log_without_gpu(void)
{
    struct text why = {0};
    gpu_machine_explain_none(&why);
    log_line(LOG_INFO, "computing on the CPU: %s", why.data);
    text_release(&why);
}

/* Opens the device of the local-th rank of this host; `cores`: CPU cores that it may use. */
static enum status open_device(struct machine *m, const struct device_config *c, int cores,
                               int local)
{
    bool gpu;
    TRY(machine_uses_gpu(c, &gpu));
    bool lists = c->gpus && c->gpus[0]; /* callers that set only some keys leave it NULL */
    if (!gpu && lists)
        FAIL(CONFIG, "device.gpus = \"%s\" has no effect: %s; set device.gpus = \"\"", c->gpus,
             gpu_backend ? "device.kind is \"cpu\""
                         : "this program was built without a GPU backend");
    if (gpu && (c->kind != DEVICE_KIND_auto || lists || gpu_machine_count()))
        return gpu_machine_open(m, c, cores, local);
    if (gpu) log_without_gpu();
    return cpu_machine_open(m, c, cores);
}

enum status machine_open(struct machine *m, const struct device_config *c)
{
    *m = (struct machine){0};
    TRY(machine_alone(m));
    TRY(open_device(m, c, thread_cores(), 0));
    return STATUS_OK;
}

/* Ranks of different programs would train, but not the same model. */
static enum status check_same_program(const struct comm *world)
{
    struct agreement a = {.subject = "the program",
                          .advice = "install the same build on all hosts (llamero --version)"};
    struct text build = {0};
    program_add_build(&build);
    agreement_add(&a, "llamero", "version %s, build %s,", LLAMERO_VERSION, build.data);
    enum status st = agreement_check(&a, world);
    text_release(&build), agreement_release(&a);
    return st;
}

enum status machine_join(struct machine *m)
{
    *m = (struct machine){0};
    enum status st = launch_open(&m->world);
    if (st == STATUS_UNSUPPORTED) launch_let_rank_0_report();
    TRY(st);
    if (m->world.size > 1) log_set_rank(m->world.rank);
    if (m->world.rank) log_set_quiet(true);
    if (m->world.size > 1) TRY(check_same_program(&m->world));
    return STATUS_OK;
}

/* With device.kind or device.cpu = "auto" hosts may choose differently, such as one whose GPU is
 * broken. */
static enum status check_same_device(const struct machine *m)
{
    struct agreement a = {.subject = "the device",
                          .advice = "set device.kind and device.cpu to what all hosts have, or "
                                    "leave a host out"};
    agreement_add(&a, "the backend", "\"%s\"", m->ops->backend);
    enum status st = agreement_check(&a, &m->world);
    agreement_release(&a);
    return st;
}

enum status machine_open_ranks(struct machine *m, const struct device_config *c,
                               const struct parallelism_config *p)
{
    int cores, local;
    TRY(comm_agree(&m->world, mesh_resolve(&m->mesh, p, m->world.rank, m->world.size)));
    TRY(groups_open(&m->groups, &m->mesh, &m->world));
    TRY(cores_per_rank(&m->world, &cores));
    TRY(cores_local_rank(&m->world, &local));
    TRY(comm_agree(&m->world, open_device(m, c, cores, local)));
    TRY(check_same_device(m));
    if (queue_device_allocator(m->queue)) TRY(gpu_machine_wrap_comms(m, c));
    return STATUS_OK;
}

void machine_close_ranks(struct machine *m, enum status how)
{
    /* All ranks close together.  The one that failed reports it before that, because a launcher may
     * end all ranks as soon as one has ended. */
    bool together = how == STATUS_REQUEUE || (how && status_is_shared());
    if (together && !status_is_remote()) log_failure(how);
    bool is_gpu = queue_device_allocator(m->queue);
    groups_close(&m->groups);
    if (is_gpu)
        gpu_machine_close(m);
    else if (m->queue)
        cpu_machine_close(m);
    launch_close(&m->world, together ? STATUS_OK : how);
    *m = (struct machine){0};
}

void machine_close(struct machine *m) { machine_close_ranks(m, STATUS_OK); }

void machine_share_gpu(const struct machine *m, const struct device_config *c)
{
    bool is_gpu = queue_device_allocator(m->queue);
    if (is_gpu && c->comm != DEVICE_COMM_staged) gpu_machine_share(m);
}

void machine_tune(struct machine *m, const struct device_config *c, double budget_s)
{
    bool is_gpu = queue_device_allocator(m->queue), is_set = c->tune_file[0];
    char *shipped = is_gpu ? tuning_shipped_path() : NULL, *path = NULL;
    if (is_set && (is_gpu || c->tune_gemm)) path = heap_strdup(c->tune_file);
    if (!is_set && c->tune_gemm) path = tuning_default_path();
    struct tuning_files files = {path, shipped, path && c->tune_gemm, budget_s};
    if (is_gpu && (path || shipped))
        gpu_machine_tune(m, &files);
    else if (path)
        cpu_machine_tune(m, path);
    if (c->tune_gemm && !path)
        log_line(LOG_WARN, "device.tune_gemm: no cache folder found, GEMMs are not autotuned: set "
                           "device.tune_file, XDG_CACHE_HOME or HOME");
    free(path), free(shipped);
}

void machine_measure_peak(struct machine *m, enum dtype dtype)
{
    if (!queue_device_allocator(m->queue))
        m->peak_flops = peak_measure_flops(m->ops, m->queue->num_threads, dtype);
    else if (m->hardware)
        m->peak_flops = dtype == F32 ? m->hardware->f32_flops : m->hardware->bf16_flops;
}
