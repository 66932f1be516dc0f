// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "metrics/memory.h"
#include "ops/cross_entropy.h"
#include "ops/update.h"
#include "parallel/ring.h"
#include "tensor/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int trainer_readers(const struct mesh *m) { return mesh_group_size(m, GROUP_data); }

int trainer_rows(const struct config *c, const struct mesh *m)
{
    const struct training_config *t = &c->training;
    int64_t all = t->global_batch_size;
    return (int)(all > 0 ? all / trainer_readers(m) : t->local_batch_size);
}

int64_t trainer_step_rows(const struct config *c, const struct mesh *m)
{
    return (int64_t)trainer_rows(c, m) * trainer_readers(m);
}

int trainer_validation_tokens(const struct config *c)
{
    return (int)(c->validation.seq_len ? c->validation.seq_len : c->training.seq_len);
}

static bool is_float32(const struct config *c)
{
    return !strcmp(c->training.mixed_precision_param, "float32");
}

/* Bytes taken since *mark, which moves on. */
static size_t since(const struct arena *a, size_t *mark)
{
    size_t bytes = a->used - *mark;
    *mark = a->used;
    return bytes;
}

static const struct comm *group(const struct trainer *t, enum group g)
{
    return &t->machine.groups.of[g];
}

/* Micro-batches of a pipeline come back to a stage too often to gather its weights anew. */
static bool keeps_weights(const struct trainer *t, const char *reshard)
{
    return !strcmp(reshard, "never") || (strcmp(reshard, "always") && group(t, GROUP_pp)->size > 1);
}

/* What a rank that shares out its weights does with them. */
static void share_out(struct trainer *t, const struct model_shape *shape)
{
    const struct parallelism_config *p = &t->config->parallelism;
    t->fsdp = (struct fsdp){
        .layout = &t->model.layout,
        .shard = group(t, GROUP_shard),
        .replicate = group(t, GROUP_replicate),
        .ops = t->machine.ops,
        .on = t->machine.on,
        .dtype = is_float32(t->config) ? F32 : BF16,
        .tied = shape->tied,
        .keep = keeps_weights(t, p->fsdp_reshard_after_forward) || !p->fsdp_shard_gradients,
        .whole_gradients = !p->fsdp_shard_gradients,
    };
    fsdp_take(&t->fsdp, &t->run);
}

static void take_copies(struct trainer *t)
{
    const struct comm *groups[] = {[COPIED_WHOLE] = group(t, GROUP_tp),
                                   [COPIED_HEADS] = &t->same_heads,
                                   [COPIED_EMBEDDING] = &t->ends};
    for (enum copied i = 0; i < COPIED_COUNT; i++) {
        t->copies[i] = (struct copies){.group = groups[i],
                                       .what = i,
                                       .layout = &t->whole,
                                       .pieces = &t->pieces,
                                       .ops = t->machine.ops,
                                       .on = t->machine.on};
        copies_take(&t->copies[i], &t->run);
    }
}

/* The ranks of `of` that give the same color. */
static enum status part_of(const struct comm *of, int color, int size, int rank, struct comm *part)
{
    *part = (struct comm){.rank = rank, .size = size, .counts = of->counts};
    if (of->transport) TRY(comm_split(of, color, of->rank, part));
    return STATUS_OK;
}

/* Ranks that hold the same beside those of a mesh's axis: heads of keys and values, as there are
 * fewer of them than ranks; and the embedding, as it is the head. */
static enum status find_copies(struct trainer *t, const struct model_shape *shape)
{
    const struct comm *tp = group(t, GROUP_tp), *pp = group(t, GROUP_pp);
    int same = tp->size > shape->G ? tp->size / shape->G : 1;
    bool end = shape->tied && pp->size > 1 && (pp->rank == 0 || pp->rank == pp->size - 1);
    TRY(part_of(tp, tp->rank / same, same, tp->rank % same, &t->same_heads));
    TRY(part_of(pp, end ? 0 : 1 + pp->rank, end ? 2 : 1, end && pp->rank, &t->ends));
    return STATUS_OK;
}

/* Which stages are here, and in what order micro-batches go through them. */
static enum status find_stages(struct trainer *t, const struct model_shape *shape,
                               struct pipeline_config *p)
{
    const struct comm *pp = group(t, GROUP_pp);
    TRY(config_pipeline(t->config, &t->machine.mesh, shape->L, p));
    int chunks = p->schedule.chunks, all = chunks * pp->size;
    int *begin = heap(((size_t)all + 1) * sizeof *begin);
    enum status st = STATUS_OK;
    t->stages = heap((size_t)chunks * sizeof *t->stages);
    TRY_OUT(stages_split(&p->stages, begin));
    for (int i = 0; i < chunks; i++) {
        int stage = schedule_stage(&p->schedule, pp->rank, i);
        t->stages[i] = (struct stage){.begin = begin[stage],
                                      .end = begin[stage + 1],
                                      .embeds = stage == 0,
                                      .heads = stage == all - 1};
    }
out:
    free(begin);
    return st;
}

static void open_pipelines(struct trainer *t, const struct pipeline_config *p)
{
    t->pipeline = (struct pipeline){.model = &t->model,
                                    .group = group(t, GROUP_pp),
                                    .stages = t->stages,
                                    .schedule = p->schedule};
    pipeline_open(&t->pipeline);
    t->micros = heap((size_t)p->schedule.micros * sizeof *t->micros);
}

/* Every buffer that lives as long as the run.  Over a measuring arena it only counts. */
static enum status take_buffers(struct trainer *t, const struct model_shape *shape,
                                struct memory_plan *plan)
{
    const struct config *c = t->config;
    struct arena *run = &t->run, *shared = &t->shared;
    int T = (int)c->training.seq_len, rows = trainer_rows(c, &t->machine.mesh);
    struct pipeline_config pipeline;
    const struct comm *shard = group(t, GROUP_shard);
    int most_T =
        c->validation.enable && trainer_validation_tokens(c) > T ? trainer_validation_tokens(c) : T;
    size_t mark = arena_mark(run), seen = arena_mark(shared);
    const struct comm *tp = group(t, GROUP_tp);
    struct model_shape here = model_shape_cut(shape, tp->size);
    t->shape = *shape;
    TRY(find_copies(t, shape));
    TRY(find_stages(t, shape, &pipeline));
    layout_init(&t->whole, shape, 1);
    t->model.on = t->machine.on;
    TRY(model_init_stages(&t->model, &here, t->stages, pipeline.schedule.chunks, most_T,
                          shard->size, run));
    open_pipelines(t, &pipeline);
    pieces_init_cut(&t->pieces, &t->model.layout, shard->rank, shard->size, &t->whole, tp->rank,
                    tp->size);
    batch_take(&t->batch, rows, T, shared);
    batch_here_take(&t->batch, group(t, GROUP_cp), &t->here, shared);
    bool has_loss = pipeline_has_loss(&t->pipeline);
    size_t tokens = (size_t)rows * (size_t)t->here.T;
    t->loss_BT = has_loss ? arena_take(shared, tokens, sizeof(float)) : NULL;
    t->evaluator = (struct evaluator){.pipeline = t->pipeline,
                                      .micro_rows = pipeline.rows,
                                      .readers = group(t, GROUP_data),
                                      .peers = group(t, GROUP_peers),
                                      .contexts = group(t, GROUP_cp)};
    t->evaluator.pipeline.state = NULL;
    if (c->validation.enable)
        evaluator_take(&t->evaluator, (int)c->validation.local_batch_size,
                       trainer_validation_tokens(c), shared);
    TRY(float8_wanted(&c->model, &c->float8, &t->has_float8));
    if (t->has_float8) TRY(float8_init(&t->float8, &c->float8, shape, run, shared));
    plan->bytes[MEMORY_batch] = since(run, &mark) + since(shared, &seen);

    size_t n = t->pieces.elements;
    if (optim_splits(&c->optimizer))
        t->low = arena_take(run, n, sizeof *t->low);
    else
        t->weights = arena_take(run, n, sizeof *t->weights);
    plan->bytes[MEMORY_weights] = since(run, &mark);
    t->compute_weights = is_float32(c) ? NULL : arena_take(run, n, dtype_bytes(BF16));
    plan->bytes[MEMORY_compute_weights] = since(run, &mark);
    t->exp_avg = arena_take(run, n, dtype_bytes(optim_moments(&c->optimizer)));
    t->exp_avg_sq = arena_take(run, n, dtype_bytes(optim_moments(&c->optimizer)));
    plan->bytes[MEMORY_optimizer] = since(run, &mark);
    t->gradients = arena_take(run, n, sizeof(float));
    plan->bytes[MEMORY_gradients] = since(run, &mark);
    share_out(t, shape);
    take_copies(t);
    plan->bytes[MEMORY_gathered] = since(run, &mark);
    bool async = c->checkpoint.enable && c->checkpoint.async_mode != ASYNC_disabled;
    t->staging = async ? arena_take(shared, checkpoint_staging_bytes(&t->pieces), 1) : NULL;
    plan->bytes[MEMORY_checkpoint] = since(shared, &seen);
    if (run->overflow || shared->overflow)
        FAIL(CONFIG, "a model of this shape does not fit into any memory");
    return STATUS_OK;
}

/* Ties the parts to each other and to the buffers. */
static enum status connect(struct trainer *t)
{
    const struct config *c = t->config;
    enum dtype dtype = is_float32(c) ? F32 : BF16;
    t->model.ops = t->machine.ops;
    tensor_plan_init(&t->plan, group(t, GROUP_tp), true);
    tensor_plan_contexts(&t->plan, group(t, GROUP_cp));
    t->model.plan = &t->plan.plan;
    t->model.dtype = dtype;
    t->model.float8 = t->has_float8 ? &t->float8 : NULL;
    TRY(recompute_resolve(&c->activation_checkpoint, &t->model.recompute,
                          &t->model.recompute_every));
    t->fsdp.weights = t->compute_weights ? t->compute_weights : t->weights;
    t->fsdp.gradients = t->gradients;
    t->model.units = &t->fsdp.units;
    t->optim = (struct optim){
        .config = &c->optimizer,
        .layout = &t->whole,
        .pieces = &t->pieces,
        .weights = t->weights,
        .exp_avg = t->exp_avg,
        .exp_avg_sq = t->exp_avg_sq,
        .copy = t->compute_weights,
        .copy_dtype = dtype,
        .moments = optim_moments(&c->optimizer),
        .seed = (uint64_t)c->debug.seed,
        .split = optim_splits(&c->optimizer),
        .low = t->low,
    };
    t->evaluator.causal = !strcmp(c->objective.name, "causal");
    t->evaluator.documents = !strcmp(c->model.attn_mask_type, "block_causal");
    return STATUS_OK;
}

/* The i-th micro-batch of the step, but for the scale of its gradient. */
static struct micro_batch micro_batch(const struct trainer *t, int i)
{
    const struct batch *b = &t->here;
    int num_micro = t->pipeline.schedule.micros, rows = b->B / num_micro;
    size_t at = (size_t)i * (size_t)rows * (size_t)b->T;
    bool documents = t->evaluator.documents;
    struct micro_batch micro = {.B = rows,
                                .T = b->T,
                                .causal = t->evaluator.causal,
                                .last = i == num_micro - 1,
                                .loss_BT = t->loss_BT ? t->loss_BT + at : NULL};
    if (!b->ids_BT && documents) micro.start_BT = micro.end_BT = micro_batch_bounds;
    if (!b->ids_BT) return micro; /* measuring */
    micro.ids_BT = b->ids_BT + at;
    micro.labels_BT = b->labels_BT + at;
    micro.start_BT = documents ? b->start_BT + at : NULL;
    micro.end_BT = documents ? b->end_BT + at : NULL;
    return micro;
}

/* Tokens to predict in these whole rows. */
static int64_t count_valid(const struct batch *b, int first_row, int rows)
{
    const int32_t *labels = b->labels_BT + (size_t)first_row * (size_t)b->T;
    int64_t valid = 0;
    for (size_t n = 0; n < (size_t)rows * (size_t)b->T; n++) valid += labels[n] != LABEL_IGNORED;
    return valid;
}

/* Of the losses of the i-th micro-batch, and so of their gradients; `valid`: labels of all ranks. A
 * rank's mean is over local_batch_size rows, however many go through the stages at once. */
static double scale_of(const struct trainer *t, int i, double valid)
{
    const struct training_config *c = &t->config->training;
    int rows = (int)c->local_batch_size, means = t->batch.B / rows;
    if (!strcmp(c->loss_norm, "rank_mean")) {
        int first = i * t->micros[i].B / rows * rows;
        valid = (double)count_valid(&t->batch, first, rows) * means * group(t, GROUP_data)->size;
    }
    return valid > 0 ? 1.0 / valid : 0;
}

/* This rank's share of the loss, and the gradients it adds up to. */
static enum status accumulate_here(struct trainer *t, double valid, double *loss)
{
    int num_micro = t->pipeline.schedule.micros;
    for (int i = 0; i < num_micro; i++) {
        t->micros[i] = micro_batch(t, i);
        t->micros[i].scale = (float)scale_of(t, i, valid);
    }
    TRY(pipeline_run(&t->pipeline, t->micros, &t->step));
    TRY(queue_wait(t->machine.on));
    *loss = 0;
    for (int i = 0; i < num_micro && t->loss_BT; i++) {
        const struct micro_batch *micro = &t->micros[i];
        double sum = 0;
        for (int n = 0; n < micro->B * micro->T; n++) sum += (double)micro->loss_BT[n];
        *loss += sum * scale_of(t, i, valid);
    }
    return STATUS_OK;
}

/* Over all the ranks that the gradient of a batch comes from. */
static enum status sum_gradients(struct trainer *t)
{
    TRY(fsdp_finish(&t->fsdp));
    for (int i = 0; i < COPIED_COUNT; i++) TRY(copies_sum(&t->copies[i], t->gradients));
    return STATUS_OK;
}

/* Gradients of the whole batch; the sum of losses over it, as loss_norm counts them. */
static enum status accumulate(struct trainer *t, struct step_result *result)
{
    struct trace *trace = t->machine.on->trace;
    const struct comm *readers = group(t, GROUP_data), *contexts = group(t, GROUP_cp);
    double valid = (double)t->batch.valid, loss;
    batch_cut(&t->batch, contexts, t->evaluator.causal, &t->here);
    TRY(comm_all_reduce(readers, REDUCE_SUM, &valid, 1));
    fsdp_begin(&t->fsdp);
    if (t->has_float8) float8_begin(&t->float8);
    TRY(accumulate_here(t, valid, &loss));
    double begin = trace_begin(trace);
    TRY(sum_gradients(t));
    if (group(t, GROUP_world)->size > 1) trace_end(trace, "wait for gradients", begin);
    bool rank_mean = !strcmp(t->config->training.loss_norm, "rank_mean");
    double own = rank_mean ? readers->size : t->batch.valid ? valid / (double)t->batch.valid : 0;
    /* The tokens of a row may be on several ranks, and only a last stage knows of them. */
    TRY(comm_all_reduce(contexts, REDUCE_SUM, &loss, 1));
    TRY(comm_all_reduce(group(t, GROUP_pp), REDUCE_SUM, &loss, 1));
    result->loss = loss, result->max_loss = loss * own;
    TRY(comm_all_reduce(readers, REDUCE_SUM, &result->loss, 1));
    TRY(comm_all_reduce(readers, REDUCE_MAX, &result->max_loss, 1));
    return STATUS_OK;
}

/* Scales of the next step, from the largest numbers that any rank has seen in this one. */
static enum status learn_scales(struct trainer *t)
{
    struct float8_state *f = &t->float8;
    if (!t->has_float8) return STATUS_OK;
    TRY(queue_wait(t->machine.on));
    float8_gather(f);
    TRY(comm_all_reduce(group(t, GROUP_world), REDUCE_MAX, f->seen, float8_seen(f)));
    float8_learn(f);
    return STATUS_OK;
}

/* The norm of the whole model's weights or gradients, of which `flat` are here. */
static enum status norm_of(const struct trainer *t, float *flat, double *norm)
{
    double squares = 0, copied;
    TRY(optim_squares(&t->optim, t->machine.ops, flat, &squares, t->machine.on));
    for (int i = 0; i < COPIED_COUNT; i++) {
        TRY(copies_squares(&t->copies[i], flat, &copied));
        squares -= copied;
    }
    if (t->machine.on->measuring) return STATUS_OK;
    TRY(comm_all_reduce(group(t, GROUP_shard), REDUCE_SUM, &squares, 1));
    TRY(comm_all_reduce(group(t, GROUP_tp), REDUCE_SUM, &squares, 1));
    TRY(comm_all_reduce(group(t, GROUP_pp), REDUCE_SUM, &squares, 1));
    *norm = sqrt(squares);
    return STATUS_OK;
}

enum status trainer_parameter_norm(const struct trainer *t, double *norm)
{
    struct unsplit all = {t->pieces.elements};
    struct unsplit_io io = {t->compute_weights, t->low, t->gradients};
    if (!t->optim.split) return norm_of(t, t->weights, norm);
    TRY(unsplit(t->machine.ops, &all, &io, t->machine.on));
    return norm_of(t, t->gradients, norm);
}

static enum status handle_nonfinite(struct trainer *t, double loss, double norm)
{
    const struct guard_config *guard = &t->config->guard;
    bool skip = !strcmp(guard->nonfinite, "skip");
    if (!skip || ++t->skips > guard->max_skips)
        FAIL(DIVERGED, "step %lld: loss %g, gradient norm %g (%s)", (long long)t->steps_done + 1,
             loss, norm, skip ? "guard.max_skips reached" : "guard.nonfinite = \"stop\"");
    log_line(LOG_WARN, "step %lld is skipped: loss %g, gradient norm %g",
             (long long)t->steps_done + 1, loss, norm);
    return STATUS_OK;
}

enum status trainer_learn(struct trainer *t, struct step_result *result)
{
    const struct config *c = t->config;
    struct trace *trace = t->machine.on->trace;
    double begin = trace_begin(trace);
    TRY(accumulate(t, result));
    trace_end(trace, "forward and backward", begin);
    begin = trace_begin(trace);
    TRY(norm_of(t, t->gradients, &result->grad_norm));
    int64_t total = c->lr_scheduler.total_steps ? c->lr_scheduler.total_steps : c->training.steps;
    int64_t rows = trainer_step_rows(c, &t->machine.mesh);
    result->lr = schedule_lr(&c->lr_scheduler, c->optimizer.lr, total, rows, t->steps_done + 1);
    result->skipped = !isfinite(result->loss) || !isfinite(result->grad_norm);
    if (result->skipped) {
        TRY(handle_nonfinite(t, result->loss, result->grad_norm));
    } else {
        t->skips = 0;
        double clip = optim_clip_factor(result->grad_norm, c->training.max_norm);
        TRY(optim_step(&t->optim, t->machine.ops, t->gradients, result->lr, clip, t->steps_done + 1,
                       t->machine.on));
        fsdp_changed(&t->fsdp);
        TRY(learn_scales(t));
    }
    trace_end(trace, "optimizer", begin);
    t->steps_done++;
    t->tokens_seen += (int64_t)t->batch.B * t->batch.T * trainer_readers(&t->machine.mesh);
    return STATUS_OK;
}

enum status trainer_step(struct trainer *t, struct loader *loader, struct step_result *result)
{
    int rows;
    double begin = clock_monotonic_s();
    enum status st = loader ? loader_next(loader, &t->batch, &rows) : STATUS_OK;
    TRY(comm_agree(group(t, GROUP_world), st));
    TRY(batch_share(&t->batch, group(t, GROUP_peers)));
    result->data_seconds = clock_monotonic_s() - begin;
    trace_end(t->machine.on->trace, "data", begin);
    TRY(trainer_learn(t, result));
    return STATUS_OK;
}

enum status trainer_start(struct trainer *t, uint64_t seed)
{
    struct store to = {t->weights, NULL, F32, t->machine.on};
    if (t->optim.split) to = (struct store){t->compute_weights, t->low, BF16, t->machine.on};
    return params_start_store(&t->whole, &t->pieces, &t->shape, seed, &to);
}

enum status trainer_sync(struct trainer *t)
{
    fsdp_changed(&t->fsdp);
    if (!t->compute_weights || t->optim.split) return STATUS_OK;
    struct cast all = {.n = t->pieces.elements, .to = BF16};
    struct cast_io io = {t->weights, t->compute_weights};
    TRY(cast(t->machine.ops, &all, &io, t->machine.on));
    return STATUS_OK;
}

/* A whole step over a measuring queue: what it would take, and nothing computed. */
static enum status rehearse(struct trainer *t)
{
    struct queue *on = t->machine.on;
    double norm;
    enum status st = STATUS_OK;
    arena_release(&on->scratch);
    on->measuring = true;
    for (int i = 0; i < t->pipeline.schedule.micros; i++) t->micros[i] = micro_batch(t, i);
    TRY_OUT(pipeline_run(&t->pipeline, t->micros, &t->step));
    TRY_OUT(sum_gradients(t));
    if (t->config->validation.enable) TRY_OUT(evaluator_measure(&t->evaluator, &t->step));
    TRY_OUT(norm_of(t, t->gradients, &norm));
    TRY_OUT(optim_step(&t->optim, t->machine.ops, t->gradients, 0, 1, 1, on));
    TRY_OUT(trainer_sync(t));
out:
    on->measuring = false;
    return st;
}

static void release_model(struct trainer *t)
{
    fsdp_release(&t->fsdp);
    float8_release(&t->float8);
    pieces_release(&t->pieces);
    layout_release(&t->whole);
    comm_release(&t->same_heads);
    comm_release(&t->ends);
    pipeline_close(&t->pipeline);
    evaluator_release(&t->evaluator);
    free(t->micros);
    free(t->stages);
    t->micros = NULL, t->stages = NULL;
    model_release(&t->model);
}

/* Sizes of everything; leaves the three arenas measured and the model open. */
static enum status measure(struct trainer *t, const struct config *c,
                           const struct model_shape *shape, const struct machine *machine,
                           struct memory_plan *plan)
{
    *t = (struct trainer){.config = c, .machine = *machine};
    *plan = (struct memory_plan){0};
    TRY(take_buffers(t, shape, plan));
    TRY(connect(t));
    TRY(rehearse(t));
    plan->bytes[MEMORY_activations] = t->step.peak;
    plan->bytes[MEMORY_scratch] = machine->on->scratch.peak;
    if (t->step.overflow || machine->on->scratch.overflow)
        FAIL(CONFIG, "a batch of this shape does not fit into any memory");
    return STATUS_OK;
}

enum status trainer_plan(const struct config *c, const struct model_shape *shape,
                         const struct machine *machine, struct memory_plan *plan)
{
    struct trainer t;
    enum status st = measure(&t, c, shape, machine, plan);
    release_model(&t);
    return st;
}

/* Weights and gradients, to the groups that gather and sum them. */
static enum status lend_weights(const struct trainer *t, size_t bytes)
{
    TRY(comm_lend(group(t, GROUP_shard), t->run.base, bytes));
    TRY(comm_lend(group(t, GROUP_replicate), t->run.base, bytes));
    return STATUS_OK;
}

enum status trainer_open(struct trainer *t, const struct config *c, const struct model_shape *shape,
                         const struct machine *machine)
{
    struct memory_plan plan;
    enum status st = STATUS_OK;
    TRY_OUT(measure(t, c, shape, machine, &plan));
    size_t run = t->run.used, step = t->step.peak, scratch = machine->on->scratch.peak;
    size_t shared = t->shared.used;
    const struct memory *own = queue_memory(machine->on);
    release_model(t);
    if (!own) memory_warn(run + step + scratch + shared, (size_t)memory_available_bytes());
    TRY_OUT(arena_init(&t->run, run, own));
    TRY_OUT(arena_init(&t->step, step, own));
    TRY_OUT(arena_init(&machine->on->scratch, scratch, own));
    TRY_OUT(arena_init(&t->shared, shared, queue_shared(machine->on)));
    TRY_OUT(take_buffers(t, shape, &plan));
    TRY_OUT(connect(t));
    TRY_OUT(pipeline_expect(&t->pipeline));
    TRY_OUT(ring_expect(group(t, GROUP_cp)));
    TRY_OUT(lend_weights(t, t->run.size));
    return STATUS_OK;
out:
    trainer_close(t);
    return st;
}

void trainer_close(struct trainer *t)
{
    release_model(t);
    (void)lend_weights(t, 0);
    if (t->machine.on) arena_release(&t->machine.on->scratch);
    arena_release(&t->step);
    arena_release(&t->run);
    arena_release(&t->shared);
}
