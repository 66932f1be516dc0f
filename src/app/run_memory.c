// SPDX-License-Identifier: Apache-2.0
#include "app/run_memory.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "config/data_stages.h"
#include "metrics/memory.h"
#include "tensor/queue.h"
#include "train/inputs.h"
#include "train/trainer.h"

#include <stdlib.h>

const struct rank_memory *run_memory_fullest(const struct run_memory *m)
{
    return &m->of_stage[m->fullest];
}

size_t run_memory_needed(const struct run_memory *m)
{
    return memory_plan_total(&run_memory_fullest(m)->plan);
}

/* Memory of the loader's prefetch. */
static size_t data_bytes(const struct run_memory *m, const struct config *c, int vocabulary,
                         const struct tokenizer *t)
{
    struct source_config one;
    struct data_config data = inputs_data_config(c, &one);
    struct loader_options o = inputs_loader_options(c, &m->machine.mesh, &data, t, vocabulary);
    struct loader *loader = NULL;
    o.is_quiet = true;
    if (loader_open(&loader, &o)) {
        log_line(LOG_WARN, "memory of the data loader is not included: %s", status_message());
        return 0;
    }
    size_t bytes = (size_t)loader_memory_bytes(loader);
    loader_close(loader);
    return bytes;
}

/* Adds the memory that is the same on every stage, and finds the stage that needs the most. */
static enum status add_common(struct run_memory *m, const struct config *c, size_t data, int ranks)
{
    enum { MPI_BYTES = 5 << 20 }; /* that a rank's MPI library allocates, about: Open MPI's */
    size_t program = (size_t)memory_resident_bytes() + (ranks > 1 ? MPI_BYTES : 0), all;
    /* On a GPU, count the libraries' device memory; data and checkpoints use host memory. */
    bool gpu = queue_device_allocator(m->machine.queue);
    if (gpu) TRY(queue_memory_info(m->machine.queue, &all, &program));
    if (gpu) data = 0;
    for (int i = 0; i < m->stages; i++) {
        struct memory_plan *plan = &m->of_stage[i].plan;
        plan->bytes[MEMORY_program] = program, plan->bytes[MEMORY_data] = data;
        if (c->checkpoint.enable && !c->checkpoint.load_only && !gpu)
            plan->bytes[MEMORY_checkpoint] += checkpoint_save_bytes(ranks);
        if (memory_plan_total(plan) > run_memory_needed(m)) m->fullest = i;
    }
    return STATUS_OK;
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

enum status run_memory_plan_steps(struct run_memory *m, const struct config *c,
                                  const struct model_shape *shape, int ranks)
{
    *m = (struct run_memory){0};
    TRY(machine_open(&m->machine, &c->device));
    groups_close(&m->machine.groups);
    TRY(mesh_resolve(&m->machine.mesh, &c->parallelism, 0, ranks));
    TRY(config_fit(c, shape, &m->machine.mesh));
    TRY(plan_stages(m, c, shape));
    for (int i = 0; i < m->stages; i++)
        if (memory_plan_total(&m->of_stage[i].plan) > run_memory_needed(m)) m->fullest = i;
    return STATUS_OK;
}

enum status run_memory_plan(struct run_memory *m, const struct config *c,
                            const struct model_shape *shape, const struct tokenizer *t, int ranks)
{
    TRY(run_memory_plan_steps(m, c, shape, ranks));
    TRY(add_common(m, c, data_bytes(m, c, shape->V, t), ranks));
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
    TRY(model_shape_resolve(&shape, &c->model, t ? tokenizer_vocab_size(t) : 0));
    return run_memory_plan(m, c, &shape, t, ranks);
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
        if (run_memory_needed(m) > most) most = run_memory_needed(m), fullest = i;
    }
    return STATUS_OK;
}

void run_memory_release(struct run_memory *m)
{
    machine_close(&m->machine);
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
    *bytes = (double)memory_total_bytes() / (host_ranks ? host_ranks : h.node_ranks);
    if (!queue_device_allocator(m->machine.queue)) return STATUS_OK;
    TRY(queue_memory_info(m->machine.queue, &all, &used));
    *bytes = (double)all;
    return STATUS_OK;
}
