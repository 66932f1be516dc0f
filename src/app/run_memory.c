// SPDX-License-Identifier: Apache-2.0
#include "app/run_memory.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "config/data_stages.h"
#include "metrics/memory.h"
#include "perf/hardware_probe.h"
#include "tensor/queue.h"
#include "train/inputs.h"
#include "train/trainer.h"
#include "train/validation.h"

#include <stdlib.h>

const struct rank_memory *run_memory_fullest(const struct run_memory *m)
{
    return &m->of_stage[m->fullest];
}

size_t run_memory_needed(const struct run_memory *m)
{
    return memory_plan_total(&run_memory_fullest(m)->plan);
}

size_t run_memory_host_needed(const struct run_memory *m)
{
    size_t most = 0;
    for (int i = 0; i < m->stages; i++) {
        size_t bytes = memory_plan_host_total(&m->of_stage[i].plan);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Memory of the loaders of training and validation. */
static size_t data_bytes(const struct run_memory *m, const struct config *c, int vocabulary,
                         const struct tokenizer *t)
{
    struct source_config one;
    struct data_config data = inputs_data_config(c, &one);
    struct loader_options o = inputs_loader_options(c, &m->machine.mesh, &data, t, vocabulary);
    struct loader *loader = NULL;
    o.is_quiet = o.is_sizing = true;
    if (loader_open(&loader, &o)) {
        log_line(LOG_WARN, "memory of the data loader is not included: %s", status_message());
        return 0;
    }
    size_t bytes = (size_t)loader_memory_bytes(loader), of_validation;
    loader_close(loader);
    if (validation_data_bytes(c, &m->machine.mesh, t, vocabulary, &of_validation))
        log_line(LOG_WARN, "memory of the validation data is not included: %s", status_message());
    return bytes + of_validation;
}

static bool is_gpu(const struct run_memory *m) { return queue_device_allocator(m->machine.queue); }

/* From device.hardware, or for a GPU of this machine from its row, if hardware.h has one. */
static double node_ranks_of(const struct run_memory *m, const struct config *c)
{
    if (m->gpu || !m->machine.hardware) return device_config_hardware(&c->device).node_ranks;
    return device_config_apply(&c->device, m->machine.hardware).node_ranks;
}

/* Adds what libraries take of the device. */
static enum status add_libraries(struct run_memory *m, const struct config *c,
                                 const struct model_shape *shape)
{
    struct machine here = m->machine;
    size_t all, used = 0;
    if (is_gpu(m) && !m->gpu) TRY(queue_memory_info(m->machine.queue, &all, &used));
    for (int i = 0; i < m->stages; i++) {
        struct memory_plan *plan = &m->of_stage[i].plan;
        if (m->gpu)
            described_gpu_add_context(plan);
        else
            plan->bytes[MEMORY_context] += used;
        here.mesh.at[AXIS_pp] = i;
        if (is_gpu(m)) described_gpu_add_communicators(c, shape, &here, node_ranks_of(m, c), plan);
    }
    return STATUS_OK;
}

/* Host memory that is the same on every stage. */
struct host_bytes {
    size_t program, data, checkpoint;
};

/* An asynchronous save reads a copy in host memory. */
static size_t save_bytes(const struct config *c, bool on_gpu, int ranks)
{
    if (!c->checkpoint.enable || c->checkpoint.load_only) return 0;
    return checkpoint_save_bytes(ranks, on_gpu && c->checkpoint.async_mode == ASYNC_disabled,
                                 optim_uses_split_weights(&c->optimizer),
                                 optim_moment_dtype(&c->optimizer));
}

static struct host_bytes host_bytes_of(const struct run_memory *m, const struct config *c,
                                       size_t data, int ranks)
{
    enum { MPI_BYTES = 10 << 20 }; /* that a rank's MPI library allocates, about: Open MPI's */
    return (struct host_bytes){.program =
                                   (size_t)memory_resident_bytes() + (ranks > 1 ? MPI_BYTES : 0),
                               .data = data,
                               .checkpoint = save_bytes(c, is_gpu(m), ranks)};
}

static void add_common(struct run_memory *m, const struct host_bytes *host)
{
    for (int i = 0; i < m->stages; i++) {
        struct memory_plan *plan = &m->of_stage[i].plan;
        plan->host[MEMORY_program] = host->program, plan->host[MEMORY_data] = host->data;
        plan->host[MEMORY_checkpoint] += host->checkpoint;
        if (!is_gpu(m)) memory_plan_merge_host(plan);
    }
}

static void find_fullest(struct run_memory *m)
{
    m->fullest = 0;
    for (int i = 0; i < m->stages; i++)
        if (memory_plan_total(&m->of_stage[i].plan) > run_memory_needed(m)) m->fullest = i;
}

static enum status plan_stages(struct run_memory *m, const struct config *c,
                               const struct model_shape *shape)
{
    struct machine here = m->machine;
    m->stages = here.mesh.degree[AXIS_pp];
    m->of_stage = heap((size_t)m->stages * sizeof *m->of_stage);
    for (int i = 0; i < m->stages; i++) {
        struct rank_memory *r = &m->of_stage[i];
        here.mesh.at[AXIS_pp] = i;
        groups_init_simulated(&r->groups, &here.mesh);
        here.groups = r->groups;
        TRY(trainer_plan(c, shape, &here, &r->plan));
    }
    return STATUS_OK;
}

static enum status open_machine(struct run_memory *m, const struct config *c)
{
    if (c->device.hardware == HARDWARE_cpu) {
        TRY(machine_open(&m->machine, &c->device));
    } else {
        m->gpu = heap(sizeof *m->gpu);
        described_gpu_open(m->gpu, &c->device, &m->machine);
    }
    return trainer_check_device(c, m->machine.queue);
}

static enum status plan_steps(struct run_memory *m, const struct config *c,
                              const struct model_shape *shape, int ranks)
{
    *m = (struct run_memory){0};
    TRY(open_machine(m, c));
    groups_close(&m->machine.groups);
    TRY(mesh_resolve(&m->machine.mesh, &c->parallelism, 0, ranks));
    TRY(config_fit(c, shape, &m->machine.mesh));
    TRY(plan_stages(m, c, shape));
    return STATUS_OK;
}

enum status run_memory_plan_steps(struct run_memory *m, const struct config *c,
                                  const struct model_shape *shape, int ranks)
{
    TRY(plan_steps(m, c, shape, ranks));
    find_fullest(m);
    return STATUS_OK;
}

enum status run_memory_plan(struct run_memory *m, const struct config *c,
                            const struct model_shape *shape, const struct tokenizer *t, int ranks)
{
    TRY(plan_steps(m, c, shape, ranks));
    TRY(add_libraries(m, c, shape));
    const struct host_bytes host = host_bytes_of(m, c, data_bytes(m, c, shape->V, t), ranks);
    add_common(m, &host);
    find_fullest(m);
    return STATUS_OK;
}

enum status run_memory_open_model(struct run_memory *m, const struct planned_run *r,
                                  struct cost_model *out)
{
    const struct config *c = r->config;
    size_t all, used = 0;
    *m = (struct run_memory){0};
    TRY(open_machine(m, c));
    groups_close(&m->machine.groups);
    m->machine.mesh = mesh_single_rank();
    size_t data = r->has_data_bytes ? r->data_bytes : data_bytes(m, c, r->shape->V, r->tokenizer);
    const struct host_bytes host = host_bytes_of(m, c, data, r->ranks);
    size_t bytes = host.program + host.data + host.checkpoint;
    if (is_gpu(m) && !m->gpu) TRY(queue_memory_info(m->machine.queue, &all, &used));
    *out = (struct cost_model){.machine = m->machine,
                               .gpu = m->gpu,
                               .hardware = device_config_hardware(&c->device),
                               .shape = r->shape,
                               .host_bytes = run_memory_host_available(m, c, 0),
                               .other_bytes = is_gpu(m) ? used : bytes,
                               .other_host_bytes = is_gpu(m) ? bytes : 0};
    if (!m->gpu) TRY(hardware_probe_fill(&out->hardware, c, r->shape, &m->machine));
    return STATUS_OK;
}

/* Whether two stages need the same memory. */
static bool is_alike(const struct config *a, const struct config *b)
{
    const struct training_config *x = &a->training, *y = &b->training;
    return x->seq_len == y->seq_len && x->local_batch_size == y->local_batch_size &&
           x->global_batch_size == y->global_batch_size &&
           a->model.attn_mask_type == b->model.attn_mask_type;
}

static enum status plan_data_stage(struct run_memory *m, const struct config *c,
                                   const struct tokenizer *t, int ranks)
{
    struct model_shape shape;
    TRY(model_shape_resolve(&shape, &c->model, tokenizer_vocab_size(t)));
    return run_memory_plan(m, c, &shape, t, ranks);
}

/* Without that of the program, which grows while stages are planned. */
static size_t bytes_of_stage(const struct run_memory *m)
{
    return run_memory_needed(m) - m->of_stage[m->fullest].plan.bytes[MEMORY_program];
}

enum status run_memory_plan_run(struct run_memory *m, const struct config *c,
                                const struct tokenizer *t, int ranks)
{
    struct mesh mesh;
    size_t count = data_stages_count(c), fullest = 0, most = 0;
    *m = (struct run_memory){0};
    TRY(mesh_resolve(&mesh, &c->parallelism, 0, ranks));
    for (size_t n = 0; n <= count; n++) { /* at last the fullest one again */
        size_t i = n < count ? n : fullest;
        struct data_stage s, before;
        enum status st = STATUS_OK;
        data_stages_open(&s, c, &mesh, i);
        data_stages_open(&before, c, &mesh, i ? i - 1 : 0);
        bool is_new = !i || (s.begin < s.end && !is_alike(&s.config, &before.config));
        bool is_planned = n < count ? is_new : i != m->data_stage;
        if (is_planned) {
            run_memory_release(m);
            st = plan_data_stage(m, &s.config, t, ranks);
            m->data_stage = i;
        }
        data_stages_close(&s), data_stages_close(&before);
        if (st) return i ? status_prefix(st, "data.stage.%zu", i - 1) : st;
        if (bytes_of_stage(m) > most) most = bytes_of_stage(m), fullest = i;
    }
    return STATUS_OK;
}

void run_memory_release(struct run_memory *m)
{
    if (m->gpu)
        described_gpu_close(m->gpu);
    else
        machine_close(&m->machine);
    free(m->gpu);
    free(m->of_stage);
    *m = (struct run_memory){0};
}

enum status run_memory_available(const struct run_memory *m, const struct config *c, int host_ranks,
                                 double *bytes)
{
    struct hardware h = device_config_hardware(&c->device);
    size_t all, used;
    *bytes = h.memory_bytes;
    if (*bytes > 0) return STATUS_OK;
    *bytes = (double)memory_total_bytes() / (host_ranks ? host_ranks : node_ranks_of(m, c));
    if (!is_gpu(m)) return STATUS_OK;
    TRY(queue_memory_info(m->machine.queue, &all, &used));
    *bytes = (double)all;
    return STATUS_OK;
}

double run_memory_host_available(const struct run_memory *m, const struct config *c, int host_ranks)
{
    struct hardware h = device_config_hardware(&c->device);
    if (!is_gpu(m)) return 0;
    if (m->gpu || h.host_bytes > 0) return h.host_bytes;
    return (double)memory_total_bytes() / (host_ranks ? host_ranks : node_ranks_of(m, c));
}
