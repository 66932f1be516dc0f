/* trainer_memory.c -- measures the buffers of a run by a sizing pass, allocates them and connects
 * the parts that use them. */
// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"
#include "checkpoint/staging.h"
#include "metrics/memory.h"
#include "optim/ema.h"
#include "optim/muon.h"
#include "tensor/device.h"
#include "train/task_evaluator.h"
#include "train/trainer.h"

#include <stdlib.h>

/* How far the arenas of a run were filled when memory was measured last. */
struct memory_marks {
    size_t run, shared;
};

/* Counts what was allocated since as that kind. */
static void measure(const struct trainer *t, enum memory_kind kind, struct memory_marks *m,
                    struct memory_plan *plan)
{
    plan->bytes[kind] = t->run.used - m->run;
    plan->host[kind] = t->shared.used - m->shared;
    *m = (struct memory_marks){t->run.used, t->shared.used};
}

/* No reshard after forward by default with a pipeline: its microbatches return to a stage so often
 * that gathering its weights each time costs too much. */
static bool keeps_weights(const struct trainer *t, enum fsdp_reshard reshard)
{
    if (reshard == FSDP_RESHARD_default) return trainer_group(t, GROUP_pp)->size > 1;
    return reshard == FSDP_RESHARD_never;
}

static void init_fsdp(struct trainer *t, const struct model_shape *shape)
{
    const struct parallelism_config *p = &t->config->parallelism;
    bool is_elastic = t->elastic.canonical;
    t->fsdp = (struct fsdp){
        .layout = &t->model.layout,
        .shard = trainer_group(t, GROUP_shard),
        .replicate = trainer_group(t, GROUP_replicate),
        .ops = t->machine.ops,
        .queue = t->machine.queue,
        .dtype = training_compute_dtype(&t->config->training),
        .tied = shape->tied,
        .keep = keeps_weights(t, p->fsdp_reshard_after_forward) || !p->fsdp_shard_gradients,
        .whole_gradients = !p->fsdp_shard_gradients && !is_elastic,
        .float8 = t->config->float8.force_recompute_fp8_weight_in_bwd ? NULL : t->model.float8,
        .elastic = is_elastic ? &t->elastic : NULL,
        .gradient_dtype = t->optim.gradients,
        .runs = &t->shard,
        .whole = &t->whole,
        .seed = (uint64_t)t->config->debug.seed,
    };
}

static void init_replicas(struct trainer *t)
{
    const struct comm *groups[] = {[REPLICATED_UNSLICED] = trainer_group(t, GROUP_tp),
                                   [REPLICATED_KV_HEADS] = &t->kv_head_peers,
                                   [REPLICATED_TIED_EMBEDDING] = &t->embedding_peers};
    for (enum replicated_kind i = 0; i < REPLICATED_COUNT; i++) {
        t->replicas[i] = (struct replicas){.group = groups[i],
                                           .kind = i,
                                           .layout = &t->whole,
                                           .shard = &t->shard,
                                           .ops = t->machine.ops,
                                           .queue = t->machine.queue};
        replicas_alloc(&t->replicas[i], &t->run);
    }
}

/* The stages of this rank, and the pipeline schedule. */
static enum status find_stages(struct trainer *t, const struct model_shape *shape,
                               struct pipeline_config *p)
{
    const struct comm *pp = trainer_group(t, GROUP_pp);
    TRY(config_pipeline(t->config, &t->machine.mesh, shape->L, p));
    int chunks = p->schedule.chunks, num_stages = chunks * pp->size;
    int *begin = heap(((size_t)num_stages + 1) * sizeof *begin);
    enum status st = STATUS_OK;
    t->stages = heap((size_t)chunks * sizeof *t->stages);
    TRY_OUT(stages_split(&p->stages, begin));
    for (int i = 0; i < chunks; i++) {
        int stage = schedule_stage(&p->schedule, pp->rank, i);
        t->stages[i] = (struct stage){.begin = begin[stage],
                                      .end = begin[stage + 1],
                                      .embeds = stage == 0,
                                      .heads = stage == num_stages - 1};
    }
out:
    free(begin);
    return st;
}

static enum status alloc_moments(struct trainer *t)
{
    size_t n = t->shard.elements, each = dtype_bytes(t->optim.moments);
    struct arena *state = t->config->optimizer.offload ? &t->shared : &t->run;
    if (t->optim.moments == INT8) {
        TRY(moments_check(&t->model.layout, &t->whole, trainer_group(t, GROUP_tp)->size));
        moments_alloc(&t->quantized, &t->whole, &t->shard, &t->run);
    }
    t->optim.exp_avg = arena_alloc(state, n, each);
    t->optim.exp_avg_sq = arena_alloc(state, t->optim.exp_avg_sq_shard->elements, each);
    return STATUS_OK;
}

/* Master weights, or their low halves. */
static void alloc_weights(struct trainer *t)
{
    bool stays = training_compute_dtype(&t->config->training) == F32;
    struct arena *state = t->config->optimizer.offload && !stays ? &t->shared : &t->run;
    t->offload = (struct optim_offload){
        .moments = t->optim.moments,
        .is_split = optim_uses_split_weights(&t->config->optimizer),
        .keeps_weights = stays,
    };
    if (t->offload.is_split)
        t->optim.low = arena_alloc(state, t->shard.elements, sizeof *t->optim.low);
    else
        t->optim.weights = arena_alloc(state, t->shard.elements, sizeof *t->optim.weights);
}

static enum status init_float8(struct trainer *t, const struct model_shape *shape)
{
    const struct config *c = t->config;
    const struct ops *ops = t->machine.ops;
    bool has_float8;
    TRY(float8_resolve(&c->model, &c->float8, &has_float8));
    if (!has_float8) return STATUS_OK;
    t->model.float8 = &t->float8;
    TRY(float8_init(&t->float8, &c->float8, shape, &t->run, &t->shared));
    if (ops->has_native_fp8 && ops->has_native_fp8(t->machine.queue))
        t->float8.device.queue = t->machine.queue;
    return STATUS_OK;
}

static void init_step_graph(struct trainer *t)
{
    const struct config *c = t->config;
    t->step_graph = (struct step_graph){
        .pipeline = &t->pipeline,
        .fsdp = &t->fsdp,
        .queue = t->machine.queue,
        .is_enabled = step_graph_is_requested(c, t->machine.queue, (double)t->whole.parameters) &&
                      !step_graph_obstacle(c, &t->machine.mesh, t->machine.queue),
    };
    step_graph_alloc(&t->step_graph, t->pipeline.schedule.num_microbatches, &t->run, &t->shared);
}

/* Tokens of the longest row, of training or of validation. */
static int max_tokens(const struct config *c)
{
    int T = (int)c->training.seq_len, validation = trainer_validation_tokens(c);
    return c->validation.enable && validation > T ? validation : T;
}

/* This rank's part of the model: its stages, slices and shard. */
static enum status init_model(struct trainer *t, const struct model_shape *shape,
                              struct pipeline_config *pipeline)
{
    const struct config *c = t->config;
    const struct comm *shard = trainer_group(t, GROUP_shard), *tp = trainer_group(t, GROUP_tp);
    struct model_shape slice = model_shape_slice(shape, tp->rank, tp->size);
    t->shape = *shape;
    TRY(replicas_split_groups(tp, trainer_group(t, GROUP_pp), shape, &t->kv_head_peers,
                              &t->embedding_peers));
    TRY(find_stages(t, shape, pipeline));
    layout_init(&t->whole, shape, 1);
    t->model.queue = t->machine.queue;
    t->elastic = config_elastic(c, &t->machine.mesh);
    t->optim.moments = optim_moment_dtype(&c->optimizer);
    t->optim.gradients = training_gradient_dtype(&c->training);
    int shards = t->elastic.canonical ? elastic_parts(&t->elastic) : shard->size;
    struct model_part part = {t->stages, pipeline->schedule.chunks, shards,
                              t->optim.moments == INT8 ? MOMENTS_ALIGN : 0};
    TRY(model_init_stages(&t->model, &slice, max_tokens(c), &part, &t->run));
    shard_init_sliced(&t->shard, &t->model.layout, &t->whole,
                      (struct shard_position){shard->rank, shard->size, tp->rank, tp->size});
    uint32_t omitted = optim_first_moment_only(&c->optimizer);
    if (omitted) shard_init_without(&t->without_muon, &t->shard, &t->whole, omitted);
    t->optim.shard = &t->shard;
    t->optim.exp_avg_sq_shard = omitted ? &t->without_muon : &t->shard;
    return STATUS_OK;
}

/* Batches, what runs microbatches of them, and validation. */
static void alloc_batches(struct trainer *t, const struct pipeline_config *pipeline)
{
    const struct config *c = t->config;
    struct arena *shared = &t->shared;
    int T = (int)c->training.seq_len, rows = trainer_rows(c, &t->machine.mesh);
    batch_alloc(&t->batch, rows, T, shared);
    if (c->objective.name == OBJECTIVE_diffusion) batch_alloc_weights(&t->batch, shared);
    batch_alloc_part(&t->batch, trainer_group(t, GROUP_cp), &t->local, shared);
    trainer_open_pipeline(t, &pipeline->schedule);
    init_step_graph(t);
    size_t tokens = (size_t)rows * (size_t)t->local.T;
    bool has_loss = pipeline_has_loss(&t->pipeline);
    t->loss_BT = has_loss ? arena_alloc(shared, tokens, sizeof(float)) : NULL;
    t->evaluator = (struct evaluator){.pipeline = t->pipeline,
                                      .microbatch_rows = pipeline->rows,
                                      .readers = trainer_group(t, GROUP_data),
                                      .peers = trainer_group(t, GROUP_peers),
                                      .contexts = trainer_group(t, GROUP_cp),
                                      .has_weights = t->batch.has_weights};
    t->evaluator.pipeline.state = NULL;
    if (c->validation.enable)
        evaluator_alloc(&t->evaluator, (int)c->validation.local_batch_size,
                        trainer_validation_tokens(c), shared);
}

static void init_integrity(struct trainer *t)
{
    t->integrity = (struct integrity){.guard = &t->config->guard,
                                      .groups = &t->machine.groups,
                                      .optim = &t->optim,
                                      .replicas = t->replicas,
                                      .queue = t->machine.queue};
    integrity_alloc(&t->integrity, &t->shared);
}

/* Host memory into which an asynchronous save copies weights and moments. */
static void alloc_staging(struct trainer *t)
{
    const struct checkpoint_config *k = &t->config->checkpoint;
    bool async = k->enable && k->async_mode != ASYNC_disabled;
    const struct optim *o = &t->optim;
    size_t bytes = staging_bytes(o->shard, o->exp_avg_sq_shard, o->moments, t->quantized.blocks,
                                 ema_is_kept(&t->config->optimizer));
    t->staging = async ? arena_alloc(&t->shared, bytes, 1) : NULL;
}

/* Allocates every buffer of the run.  Over a sizing arena it only counts bytes. */
static enum status alloc_buffers(struct trainer *t, const struct model_shape *shape,
                                 struct memory_plan *plan)
{
    const struct config *c = t->config;
    struct arena *run = &t->run;
    struct memory_marks marks = {t->run.used, t->shared.used};
    struct pipeline_config pipeline;
    TRY(init_model(t, shape, &pipeline));
    alloc_batches(t, &pipeline);
    TRY(init_float8(t, shape));
    measure(t, MEMORY_batch, &marks, plan);
    size_t n = t->shard.elements;
    alloc_weights(t);
    measure(t, MEMORY_weights, &marks, plan);
    enum dtype dtype = training_compute_dtype(&c->training);
    t->optim.copy = dtype == F32 ? NULL : arena_alloc(run, n, dtype_bytes(dtype));
    measure(t, MEMORY_compute_weights, &marks, plan);
    TRY(alloc_moments(t));
    if (ema_is_kept(&c->optimizer)) t->optim.ema = arena_alloc(run, n, sizeof *t->optim.ema);
    measure(t, MEMORY_optimizer, &marks, plan);
    init_fsdp(t, shape);
    t->gradients = arena_alloc(run, n * (size_t)fsdp_gradient_buffers(&t->fsdp),
                               dtype_bytes(t->optim.gradients));
    measure(t, MEMORY_gradients, &marks, plan);
    fsdp_alloc(&t->fsdp, run);
    if (c->optimizer.offload) optim_offload_init(&t->offload, n, run);
    init_replicas(t);
    init_integrity(t);
    measure(t, MEMORY_gathered, &marks, plan);
    alloc_staging(t);
    measure(t, MEMORY_checkpoint, &marks, plan);
    if (run->overflow || t->shared.overflow)
        FAIL(CONFIG, "the size of a model of this shape overflows");
    return STATUS_OK;
}

/* Sets the fields of the optimizer that are not buffers. */
static void connect_optim(struct trainer *t)
{
    const struct config *c = t->config;
    const struct comm *fsdp = trainer_group(t, GROUP_shard), *tp = trainer_group(t, GROUP_tp);
    struct optim *o = &t->optim;
    o->config = &c->optimizer;
    o->layout = &t->whole;
    o->copy_dtype = t->model.dtype;
    o->moment_blocks = t->quantized.ranges ? t->quantized.blocks : NULL;
    o->seed = (uint64_t)c->debug.seed;
    o->split = optim_uses_split_weights(&c->optimizer);
    o->offload = c->optimizer.offload ? &t->offload : NULL;
    o->local = &t->model.layout;
    o->fsdp = fsdp, o->tp = tp;
    o->partition = fsdp->rank * tp->size + tp->rank;
}

/* Connects the parts to each other and to the buffers. */
static enum status connect_parts(struct trainer *t)
{
    const struct config *c = t->config;
    enum dtype dtype = training_compute_dtype(&c->training);
    t->model.ops = t->machine.ops;
    plan_init_tensor(&t->plan, trainer_group(t, GROUP_tp), true);
    plan_add_context(&t->plan, trainer_group(t, GROUP_cp));
    t->model.plan = &t->plan.plan;
    t->model.dtype = dtype;
    TRY(recompute_resolve(&c->activation_checkpoint, &t->model.recompute,
                          &t->model.recompute_every));
    t->activation_offload.host = &t->host_step;
    t->activation_offload.alternates = trainer_group(t, GROUP_pp)->size == 1;
    t->model.offload = c->activation_checkpoint.offload ? &t->activation_offload : NULL;
    t->fsdp.weights = t->optim.copy ? t->optim.copy : t->optim.weights;
    t->fsdp.gradients = t->gradients;
    t->model.units = &t->fsdp.units;
    connect_optim(t);
    t->sums = (struct step_sums){
        .groups = &t->machine.groups,
        .ops = t->machine.ops,
        .queue = t->machine.queue,
        .optim = &t->optim,
        .layout = &t->model.layout,
        .replicas = t->replicas,
        .elastic = t->fsdp.elastic,
    };
    step_sums_init(&t->sums, t->pipeline.schedule.num_microbatches);
    t->evaluator.is_exact = t->elastic.canonical;
    t->evaluator.causal = c->objective.name == OBJECTIVE_causal;
    t->evaluator.documents = c->model.attn_mask_type == ATTN_MASK_block_causal;
    return STATUS_OK;
}

/* A whole step as a sizing pass, which computes nothing. */
static enum status size_step(struct trainer *t)
{
    struct queue *queue = t->machine.queue;
    enum status st = STATUS_OK;
    arena_release(&queue->scratch);
    queue->library_bytes = 0;
    queue->sizing = true;
    size_t mark = arena_mark(&t->step);
    TRY_OUT(batch_upload(&t->local, queue, &t->step, &t->uploaded));
    for (int i = 0; i < t->pipeline.schedule.num_microbatches; i++)
        t->microbatches[i] = trainer_microbatch(t, i);
    TRY_OUT(pipeline_run(&t->pipeline, t->microbatches, &t->step));
    arena_reset(&t->step, mark);
    TRY_OUT(trainer_finish_gradients(t));
    /* Between training and validation the optimizer makes these stale. */
    fsdp_invalidate_weights(&t->fsdp);
    if (t->model.float8) float8_forget_weights(&t->float8);
    if (t->config->validation.enable) TRY_OUT(evaluator_size(&t->evaluator, &t->step));
    if (t->config->validation.enable && t->config->validation.tasks.count)
        TRY_OUT(task_evaluator_size(&t->evaluator, &t->step));
    TRY_OUT(step_sums_size(&t->sums, t->gradients));
    const struct optim_update update = {t->gradients, .scale = 1, .step = 1};
    TRY_OUT(trainer_update_weights(t, &update));
    TRY_OUT(trainer_sync_weights(t));
out:
    queue->sizing = false;
    return st;
}

static void release_model(struct trainer *t)
{
    step_graph_release(&t->step_graph);
    fsdp_release(&t->fsdp);
    float8_release(&t->float8);
    moments_release(&t->quantized);
    if (t->machine.queue) optim_offload_release(&t->offload, t->machine.queue);
    if (t->machine.queue) activation_offload_release(&t->activation_offload, t->machine.queue);
    muon_release(&t->optim);
    shard_release(&t->shard), shard_release(&t->without_muon);
    layout_release(&t->whole);
    comm_release(&t->kv_head_peers);
    comm_release(&t->embedding_peers);
    pipeline_close(&t->pipeline);
    evaluator_release(&t->evaluator);
    step_sums_release(&t->sums);
    free(t->microbatches), free(t->stages);
    t->microbatches = NULL, t->stages = NULL;
    model_release(&t->model);
}

void trainer_set_queue(struct queue *queue, const struct config *c)
{
    queue->thread_invariant = c->training.determinism == DETERMINISM_elastic;
}

/* Sizes everything; leaves the three arenas sized and the model open. */
static enum status size_trainer(struct trainer *t, const struct config *c,
                                const struct model_shape *shape, const struct machine *machine,
                                struct memory_plan *plan)
{
    *t = (struct trainer){.config = c, .machine = *machine};
    *plan = (struct memory_plan){0};
    trainer_set_queue(machine->queue, c);
    TRY(alloc_buffers(t, shape, plan));
    TRY(connect_parts(t));
    TRY(size_step(t));
    plan->bytes[MEMORY_activations] = t->step.peak;
    plan->host[MEMORY_activations] = t->host_step.peak;
    plan->bytes[MEMORY_scratch] = machine->queue->scratch.peak + machine->queue->library_bytes;
    if (!queue_device_allocator(machine->queue)) memory_plan_merge_host(plan);
    if (t->step.overflow || t->host_step.overflow || machine->queue->scratch.overflow)
        FAIL(CONFIG, "the size of a batch of this shape overflows");
    return STATUS_OK;
}

enum status trainer_plan(const struct config *c, const struct model_shape *shape,
                         const struct machine *machine, struct memory_plan *plan)
{
    struct trainer t;
    enum status st = size_trainer(&t, c, shape, machine, plan);
    release_model(&t);
    return st;
}

/* Registers weights and gradients with the groups that transfer them; bytes 0 deregisters. */
static enum status register_memory(const struct trainer *t, size_t bytes)
{
    TRY(comm_register_memory(trainer_group(t, GROUP_shard), t->run.base, bytes));
    TRY(comm_register_memory(trainer_group(t, GROUP_replicate), t->run.base, bytes));
    return STATUS_OK;
}

/* Elastic sums need the order of comm.h. */
static enum status check_transports(const struct trainer *t)
{
    for (enum group g = 0; g < GROUP_COUNT; g++) {
        const struct comm *c = trainer_group(t, g);
        if (t->elastic.canonical && c->size > 1 && c->transport && c->transport->own_order)
            FAIL(CONFIG,
                 "training.determinism = \"elastic\" is not supported over %s, which sums in an "
                 "order of its own: set device.comm = \"staged\"",
                 c->transport->name);
    }
    return STATUS_OK;
}

enum status trainer_check_device(const struct config *c, const struct queue *queue)
{
    const char *key = c->optimizer.offload               ? "optimizer.offload"
                      : c->activation_checkpoint.offload ? "activation_checkpoint.offload"
                                                         : NULL;
    if (key && !queue_device_allocator(queue))
        FAIL(CONFIG,
             "%s = true requires a GPU: on a CPU everything is in host memory already; set it to "
             "false",
             key);
    return STATUS_OK;
}

/* `staged`: bytes of it for asynchronous saves, which a run can do without. */
static enum status open_shared(struct trainer *t, size_t bytes, size_t staged,
                               const struct allocator *allocator)
{
    enum status st = arena_init(&t->shared, bytes, allocator);
    if (st && staged)
        status_prefix(st,
                      "checkpoint.async_mode = \"%s\" takes %s of host memory, \"disabled\" none",
                      async_mode_word(t->config->checkpoint.async_mode),
                      byte_size_format((double)staged).text);
    return st;
}

/* Sizes everything and allocates the arenas.  A rank may fail alone. */
static enum status open_arenas(struct trainer *t, const struct config *c,
                               const struct model_shape *shape, const struct machine *machine)
{
    struct memory_plan plan;
    enum status st = size_trainer(t, c, shape, machine, &plan);
    if (!st) st = trainer_check_device(c, machine->queue);
    if (!st) st = check_transports(t);
    release_model(t);
    TRY(st);
    size_t run = t->run.used, step = t->step.peak, scratch = machine->queue->scratch.peak;
    size_t shared = t->shared.used, host_step = t->host_step.peak;
    const struct allocator *own = queue_device_allocator(machine->queue);
    memory_plan_warn(shared + host_step + (own ? 0 : run + step + scratch),
                     (size_t)memory_available_bytes());
    TRY(arena_init(&t->run, run, own));
    TRY(arena_init(&t->step, step, own));
    TRY(arena_init(&machine->queue->scratch, scratch, own));
    /* On a CPU, `bytes` has what would be the host's. */
    size_t staged = plan.host[MEMORY_checkpoint] + plan.bytes[MEMORY_checkpoint];
    TRY(open_shared(t, shared, staged, queue_shared_allocator(machine->queue)));
    TRY(arena_init(&t->host_step, host_step, queue_shared_allocator(machine->queue)));
    return STATUS_OK;
}

enum status trainer_open(struct trainer *t, const struct config *c, const struct model_shape *shape,
                         const struct machine *machine)
{
    struct memory_plan plan;
    enum status st = STATUS_OK;
    TRY_OUT(comm_agree(&machine->groups.of[GROUP_world], open_arenas(t, c, shape, machine)));
    TRY_OUT(alloc_buffers(t, shape, &plan));
    TRY_OUT(connect_parts(t));
    TRY_OUT(pipeline_declare_p2p(&t->pipeline));
    TRY_OUT(register_memory(t, t->run.size));
    return STATUS_OK;
out:
    trainer_close(t);
    return st;
}

void trainer_close(struct trainer *t)
{
    (void)register_memory(t, 0);
    release_model(t);
    if (t->machine.queue) arena_release(&t->machine.queue->scratch);
    arena_release(&t->step);
    arena_release(&t->run);
    arena_release(&t->shared);
    arena_release(&t->host_step);
}
