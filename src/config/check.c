/* check.c -- rules that involve several keys. */
// SPDX-License-Identifier: Apache-2.0
#include "config/batch_ramp.h"
#include "config/config.h"
#include "config/data_stages.h"
#include "config/refusals.h"
#include "model/float8.h"
#include "optim/optim.h"
#include "parallel/fit.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* "layers.4": the stage boundary is between blocks 3 and 4. */
static enum status parse_split_points(const struct option_list *points, struct stages *s)
{
    const char *key = "parallelism.pipeline_parallel_split_points";
    if (points->count > MAX_CUTS)
        FAIL(CONFIG, "%s: expected at most %d split points, got %zu", key, MAX_CUTS, points->count);
    s->split = SPLIT_cuts, s->num_cuts = (int)points->count;
    for (size_t i = 0; i < points->count; i++) {
        const char *word = points->items[i];
        int block, end = 0;
        if (sscanf(word, "layers.%8d%n", &block, &end) < 1 || word[end] || block < 0)
            FAIL(CONFIG, "%s: \"%s\": expected a block such as \"layers.4\"", key, word);
        s->cuts[i] = block - 1;
    }
    return STATUS_OK;
}

/* Rows of a microbatch. */
static int64_t microbatch_rows(const struct config *c, const struct mesh *mesh)
{
    bool is_piped = mesh->degree[AXIS_pp] > 1;
    return is_piped ? c->parallelism.pipeline_parallel_microbatch_size
                    : c->training.local_batch_size;
}

struct row_split config_row_split(const struct config *c, const struct mesh *mesh)
{
    bool has_blocks = c->data.order == ORDER_megatron;
    return (struct row_split){
        .readers = (uint64_t)mesh_group_size(mesh, GROUP_data),
        .block = has_blocks ? (uint64_t)microbatch_rows(c, mesh) : 1,
    };
}

int64_t config_step_rows(const struct config *c, const struct mesh *mesh)
{
    const struct training_config *t = &c->training;
    int64_t readers = mesh_group_size(mesh, GROUP_data);
    return t->global_batch_size > 0 ? t->global_batch_size : t->local_batch_size * readers;
}

int64_t config_reader_rows(const struct config *c, const struct mesh *mesh, int64_t step_rows)
{
    const struct row_split split = config_row_split(c, mesh);
    int64_t most = (int64_t)row_split_most(&split, (uint64_t)step_rows);
    int64_t micro = microbatch_rows(c, mesh);
    return (most + micro - 1) / micro * micro;
}

enum status config_pipeline(const struct config *c, const struct mesh *mesh, int blocks,
                            struct pipeline_config *p)
{
    const struct parallelism_config *from = &c->parallelism;
    int pp = mesh->degree[AXIS_pp];
    int64_t rows = config_reader_rows(c, mesh, config_step_rows(c, mesh));
    struct stages *s = &p->stages;
    *p = (struct pipeline_config){
        .stages = {.blocks = blocks,
                   .pp = pp,
                   .chunks = 1,
                   .split = from->pipeline_parallel_remainder == PIPELINE_REMAINDER_last
                                ? SPLIT_last
                                : SPLIT_first,
                   .first_less = (int)from->pipeline_parallel_first_stage_less_layers,
                   .last_less = (int)from->pipeline_parallel_last_stage_less_layers},
        .schedule = {.kind = SCHEDULE_1F1B, .pp = pp}};
    if (s->pp > 1) {
        const struct option_list *points = &from->pipeline_parallel_split_points;
        enum schedule_kind kind = p->schedule.kind = from->pipeline_parallel_schedule;
        p->rows = (int)from->pipeline_parallel_microbatch_size;
        if (points->count) TRY(parse_split_points(points, s));
        s->chunks = points->count                      ? (s->num_cuts + s->pp) / s->pp
                    : kind == SCHEDULE_Interleaved1F1B ? 2
                                                       : 1;
        if (!points->count && blocks > 0)
            TRY(stages_chunks(s, kind, (int)from->pipeline_parallel_layers_per_stage, &s->chunks));
    }
    p->schedule.chunks = s->chunks;
    p->schedule.num_microbatches = (int)(rows / microbatch_rows(c, mesh));
    return STATUS_OK;
}

struct elastic config_elastic(const struct config *c, const struct mesh *mesh)
{
    const struct training_config *t = &c->training;
    int64_t rows = microbatch_rows(c, mesh);
    struct elastic e = {.canonical = t->canonical_microbatches,
                        .microbatches = t->global_batch_size / rows,
                        .readers = mesh_group_size(mesh, GROUP_data),
                        .contexts = mesh->degree[AXIS_cp]};
    if (t->determinism != DETERMINISM_elastic) return (struct elastic){0};
    if (!e.canonical) e.canonical = elastic_choose(e.microbatches);
    return e;
}

/* The steps of a batch ramp that are smaller than a full step: `f` with fewer rows and
 * microbatches. */
static enum status fit_ramp(const struct config *c, const struct fit *full)
{
    const struct batch_ramp r = batch_ramp_of(&c->training, full->global_batch_size);
    for (int64_t rows = r.start; r.increment && rows < r.global; rows += r.increment) {
        struct fit f = *full;
        f.global_batch_size = rows;
        f.schedule.num_microbatches =
            (int)(config_reader_rows(c, f.mesh, rows) / f.micro_batch_size);
        enum status st = fit_check(&f);
        if (st)
            return status_prefix(st, "training.batch_ramp = [%lld, %lld, %lld], steps of %lld rows",
                                 (long long)r.start, (long long)r.increment, (long long)r.samples,
                                 (long long)rows);
    }
    return STATUS_OK;
}

enum status config_fit(const struct config *c, const struct model_shape *shape,
                       const struct mesh *mesh)
{
    const struct training_config *t = &c->training;
    const struct validation_config *v = &c->validation;
    struct pipeline_config p;
    TRY(config_pipeline(c, mesh, shape ? shape->L : 0, &p));
    struct fit f = {
        .mesh = mesh,
        .shape = shape,
        .section = "training",
        .seq_len = t->seq_len,
        .local_batch_size = t->local_batch_size,
        .global_batch_size = t->global_batch_size,
        .micro_batch_size = p.rows ? p.rows : t->local_batch_size,
        .even = t->loss_norm == LOSS_NORM_rank_mean || t->determinism == DETERMINISM_elastic,
        .causal = c->objective.name == OBJECTIVE_causal,
        .stages = p.stages,
        .schedule = p.schedule,
    };
    TRY(fit_check(&f));
    const struct elastic elastic = config_elastic(c, mesh);
    TRY(elastic_check(&elastic));
    if (elastic.canonical && t->batch_ramp.count)
        FAIL(CONFIG, "training.batch_ramp requires training.determinism = \"layout\"");
    TRY(fit_ramp(c, &f));
    if (!v->enable) return STATUS_OK;
    f.section = "validation";
    f.seq_len = v->seq_len ? v->seq_len : t->seq_len;
    if (shape && !rope_scaling_agrees(&shape->scaling, (int)f.seq_len, (int)t->seq_len))
        FAIL(CONFIG,
             "validation.seq_len = %lld with training.seq_len = %lld: with model.rope_scaling = "
             "\"%s\" RoPE has other frequencies in rows of that length; set it to 0, or both to at "
             "most %d",
             (long long)v->seq_len, (long long)t->seq_len, rope_method_name(&shape->scaling),
             shape->scaling.original_context);
    f.local_batch_size = v->local_batch_size;
    f.micro_batch_size = p.rows ? p.rows : v->local_batch_size;
    f.global_batch_size = -1;
    return fit_check(&f);
}

static enum status check_layout(const struct config *c, int num_ranks)
{
    const struct training_config *t = &c->training;
    struct mesh mesh;
    TRY(mesh_resolve(&mesh, &c->parallelism, 0, num_ranks));
    if (t->global_batch_size == 0 || t->global_batch_size < -1)
        FAIL(CONFIG, "training.global_batch_size = %lld: must be -1 or at least 1",
             (long long)t->global_batch_size);
    TRY(batch_ramp_check(t));
    return config_fit(c, NULL, &mesh);
}

static enum status check_elastic(const struct config *c)
{
    const struct training_config *t = &c->training;
    const struct parallelism_config *p = &c->parallelism;
    if (t->determinism != DETERMINISM_elastic) {
        if (!t->canonical_microbatches) return STATUS_OK;
        FAIL(CONFIG,
             "training.canonical_microbatches = %lld requires training.determinism = \"elastic\"",
             (long long)t->canonical_microbatches);
    }
    if (t->global_batch_size < 1)
        FAIL(CONFIG, "training.determinism = \"elastic\" requires training.global_batch_size, so "
                     "that a step has the same rows on any number of ranks");
    if (!c->device.deterministic)
        FAIL(CONFIG, "training.determinism = \"elastic\" requires device.deterministic = true");
    if (t->loss_norm == LOSS_NORM_rank_mean && p->pipeline_parallel_degree > 1 &&
        p->pipeline_parallel_microbatch_size != t->local_batch_size)
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_microbatch_size = %lld: must be "
             "training.local_batch_size = %lld with training.determinism = \"elastic\" and "
             "training.loss_norm = \"rank_mean\"",
             (long long)p->pipeline_parallel_microbatch_size, (long long)t->local_batch_size);
    return STATUS_OK;
}

static enum status check_schedule(const struct config *c)
{
    const struct lr_scheduler_config *s = &c->lr_scheduler;
    int64_t total = s->total_steps ? s->total_steps : c->training.steps;
    if (s->warmup_steps > total && s->formula != LR_FORMULA_torchtitan)
        FAIL(CONFIG,
             "lr_scheduler.warmup_steps = %lld: must be at most the %lld steps of the schedule",
             (long long)s->warmup_steps, (long long)total);
    bool megatron = s->formula == LR_FORMULA_megatron;
    if (!megatron && (s->warmup_samples || s->total_samples))
        FAIL(CONFIG,
             "lr_scheduler.%s = %lld requires lr_scheduler.formula = \"megatron\", got \"%s\"",
             s->total_samples ? "total_samples" : "warmup_samples",
             (long long)(s->total_samples ? s->total_samples : s->warmup_samples),
             lr_formula_word(s->formula));
    bool has_steps = !s->total_samples || (s->warmup_steps && !s->warmup_samples);
    if (megatron && c->training.batch_ramp.count && has_steps)
        FAIL(CONFIG,
             "training.batch_ramp with lr_scheduler.formula = \"megatron\", which counts samples, "
             "requires lr_scheduler.total_samples, and lr_scheduler.warmup_samples instead of "
             "lr_scheduler.warmup_steps");
    if (!megatron && s->decay_type == LR_DECAY_inverse_sqrt)
        FAIL(CONFIG,
             "lr_scheduler.decay_type = \"inverse_sqrt\" requires lr_scheduler.formula = "
             "\"megatron\", got \"%s\"",
             lr_formula_word(s->formula));
    if (s->decoupled_min_lr_factor > 0 && !(c->optimizer.decoupled_lr > 0))
        FAIL(CONFIG, "lr_scheduler.decoupled_min_lr_factor = %g requires optimizer.decoupled_lr",
             s->decoupled_min_lr_factor);
    if (s->decay_ratio < 0 && s->decay_ratio != -1)
        FAIL(CONFIG, "lr_scheduler.decay_ratio = %g: must be from 0 to 1, or -1", s->decay_ratio);
    return STATUS_OK;
}

static enum status check_packing(const struct config *c)
{
    if (c->data.packing != PACKING_best_fit) return STATUS_OK;
    if (c->data.order != ORDER_streams)
        FAIL(CONFIG, "data.packing = \"best_fit\" requires data.order = \"streams\", got \"%s\"",
             data_order_word(c->data.order));
    if (c->model.attn_mask_type != ATTN_MASK_block_causal)
        FAIL(CONFIG, "data.packing = \"best_fit\" requires model.attn_mask_type = "
                     "\"block_causal\", so that documents in a row do not see each other");
    return STATUS_OK;
}

static enum status check_data(const struct config *c)
{
    double weights = 0;
    for (size_t i = 0; i < c->data.num_sources; i++) weights += c->data.sources[i].weight;
    if (c->data.num_sources && !(weights > 0))
        FAIL(CONFIG, "data.source: all weights are 0; at least one must be greater than 0");
    if (c->data.num_sources && c->training.dataset_path[0])
        FAIL(CONFIG,
             "training.dataset_path = \"%s\" and [[data.source]] are both set: set only one",
             c->training.dataset_path);
    if (!c->data.num_sources && !c->training.dataset_path[0])
        FAIL(CONFIG,
             "no training data: set training.dataset, training.dataset_path, or the path of a "
             "[[data.source]]");
    if (c->data.sampler != SAMPLER_single && c->data.order != ORDER_megatron)
        FAIL(CONFIG, "data.sampler = \"%s\" requires data.order = \"megatron\"",
             data_sampler_word(c->data.sampler));
    TRY(check_packing(c));
    if (c->objective.name != OBJECTIVE_causal && !c->objective.mask_token[0])
        FAIL(CONFIG, "objective.name = \"%s\" requires objective.mask_token",
             objective_kind_word(c->objective.name));
    if (c->objective.name != OBJECTIVE_causal && c->model.sliding_window)
        FAIL(CONFIG, "model.sliding_window = %lld requires objective.name = \"causal\"",
             (long long)c->model.sliding_window);
    if (c->objective.name == OBJECTIVE_masked && !(c->objective.mask_probability > 0))
        FAIL(CONFIG, "objective.mask_probability = 0: must be greater than 0");
    const struct validation_config *v = &c->validation;
    if (v->enable && !config_has_validation_data(c) && !v->tasks.count)
        FAIL(CONFIG, "validation.enable = true requires validation.dataset_path, "
                     "validation.dataset, data.validation_share or validation.tasks");
    if (c->objective.name == OBJECTIVE_diffusion && v->enable && v->tasks.count)
        FAIL(CONFIG, "validation.tasks requires objective.name = \"causal\" or \"masked\": the "
                     "likelihood of a task's answers is not defined for \"diffusion\"; remove "
                     "validation.tasks");
    if (v->enable && v->steps == 0) FAIL(CONFIG, "validation.steps = 0: must be -1 or at least 1");
    return STATUS_OK;
}

/* A key that only Muon reads. */
static enum status check_muon(const struct optimizer_config *o)
{
    const char *key = o->momentum != 0.95                     ? "momentum"
                      : !o->nesterov                          ? "nesterov"
                      : o->ns_steps != 5                      ? "ns_steps"
                      : o->adjust_lr_fn != ADJUST_LR_original ? "adjust_lr_fn"
                                                              : NULL;
    if (o->name != OPTIMIZER_Muon && key)
        FAIL(CONFIG, "optimizer.%s requires optimizer.name = \"Muon\", got \"%s\"", key,
             optimizer_name_word(o->name));
    if (o->name == OPTIMIZER_Muon && o->state_dtype == STATE_DTYPE_int8)
        FAIL(CONFIG, "optimizer.state_dtype = \"int8\" is not supported with optimizer.name = "
                     "\"Muon\": use \"bfloat16\"");
    if (o->name == OPTIMIZER_Muon && o->offload)
        FAIL(CONFIG, "optimizer.offload = true is not supported with optimizer.name = \"Muon\", "
                     "which needs whole matrices on the device: set optimizer.offload = false");
    if (o->offload && o->ema_decay > 0)
        FAIL(CONFIG,
             "optimizer.offload = true is not supported with optimizer.ema_decay > 0, which "
             "reads the master weights on the device: set one of them to its default");
    return STATUS_OK;
}

static enum status check_optimizer_bounds(const struct optimizer_config *o)
{
    const struct {
        const char *key;
        double decay;
    } decays[] = {{"beta1", o->beta1},
                  {"beta2", o->beta2},
                  {"momentum", o->momentum},
                  {"ema_decay", o->ema_decay}};
    for (size_t i = 0; i < sizeof decays / sizeof *decays; i++)
        if (decays[i].decay == 1)
            FAIL(CONFIG, "optimizer.%s = 1: must be below 1: an average of decay 1 never changes",
                 decays[i].key);
    if (o->eps > 0 && o->eps < FLT_MIN) /* kernels add it as a float */
        FAIL(CONFIG, "optimizer.eps = %g: must be 0 or from %g to 1", o->eps, (double)FLT_MIN);
    if (o->lr > 0 && o->lr < FLT_MIN)
        FAIL(CONFIG,
             "optimizer.lr = %g: must be 0 or from %g to 1000: weights are updated in floats",
             o->lr, (double)FLT_MIN);
    return STATUS_OK;
}

static enum status check_optimizer(const struct config *c)
{
    TRY(check_optimizer_bounds(&c->optimizer));
    TRY(check_muon(&c->optimizer));
    if (optim_uses_split_weights(&c->optimizer) && training_compute_dtype(&c->training) != BF16)
        FAIL(CONFIG,
             "optimizer.master_weights = \"split\" requires training.mixed_precision_param = "
             "\"bfloat16\", got \"%s\"",
             compute_dtype_word(c->training.mixed_precision_param));
    const char *other = c->optimizer.name == OPTIMIZER_Muon ? "optimizer.name = \"Muon\""
                        : c->training.determinism == DETERMINISM_elastic
                            ? "training.determinism = \"elastic\""
                            : NULL;
    if (training_gradient_dtype(&c->training) == BF16 && other)
        FAIL(CONFIG, "training.gradient_dtype = \"bfloat16\" is not supported with %s", other);
    return STATUS_OK;
}

static enum status check_checkpoints(const struct config *c)
{
    const struct checkpoint_config *k = &c->checkpoint;
    if (k->keep_latest_k == 1)
        FAIL(CONFIG, "checkpoint.keep_latest_k = 1: must be 0 (keep all) or at least 2, so that an "
                     "intact checkpoint exists while the next one is written");
    if (!c->job.dump_folder[0]) FAIL(CONFIG, "job.dump_folder = \"\": expected a folder");
    if (!k->folder[0]) FAIL(CONFIG, "checkpoint.folder = \"\": expected a folder");
    if (k->copy_to[0] && strncmp(k->copy_to, "s3://", 5))
        FAIL(CONFIG, "checkpoint.copy_to = \"%s\": expected s3://BUCKET/PREFIX", k->copy_to);
    if (k->copy_to[0] && !k->enable)
        FAIL(CONFIG, "checkpoint.copy_to requires checkpoint.enable = true");
    return config_check_accepted(c);
}

static enum status check_float8(const struct config *c)
{
    struct refusals r = {0};
    TRY(float8_resolve(&c->model, &c->float8, &(bool){false}));
    if (option_list_contains(&c->float8.filter_fqns, "auto_filter_small_kn"))
        refusals_add(&r, "float8.filter_fqns",
                     "float8.filter_fqns = [\"auto_filter_small_kn\"]: small GEMMs run in FP8, "
                     "too");
    enum status st = refusals_check(&r, &c->config);
    refusals_release(&r);
    return st;
}

static enum status check_replay(const struct config *c)
{
    if (c->guard.replay_every && !c->device.deterministic)
        FAIL(CONFIG,
             "guard.replay_every = %lld requires device.deterministic = true, got false: a replay "
             "must give the same bits",
             (long long)c->guard.replay_every);
    return STATUS_OK;
}

/* A rollback needs checkpoints to go back to, and rows to continue with. */
static enum status check_guard(const struct config *c)
{
    const struct guard_config *g = &c->guard;
    bool nonfinite = g->nonfinite == NONFINITE_rollback;
    if (g->skip_rows.count && c->data.order == ORDER_megatron)
        FAIL(CONFIG,
             "guard.skip_rows requires data.order = \"streams\": Megatron-LM's order has no "
             "further samples to take their place; guard.skip_steps skips steps");
    const char *key = nonfinite ? "guard.nonfinite" : "guard.on_spike";
    if (!nonfinite && g->on_spike != ON_SPIKE_rollback) return STATUS_OK;
    if (!c->checkpoint.enable || c->checkpoint.load_only)
        FAIL(CONFIG,
             "%s = \"rollback\" requires checkpoint.enable = true and checkpoint.load_only = false",
             key);
    if (c->data.order == ORDER_megatron && !c->data.samples)
        FAIL(CONFIG,
             "%s = \"rollback\" with data.order = \"megatron\" requires data.samples: more than "
             "the rows of training.steps, for the rows that are skipped",
             key);
    return STATUS_OK;
}

static enum status check_stages(const struct config *c, int num_ranks)
{
    struct mesh mesh;
    if (!c->data.num_stages) return STATUS_OK;
    TRY(mesh_resolve(&mesh, &c->parallelism, 0, num_ranks));
    TRY(data_stages_check(c, &mesh));
    for (size_t i = 1; i < data_stages_count(c); i++) {
        struct data_stage s;
        data_stages_open(&s, c, &mesh, i);
        enum status st = config_check(&s.config, num_ranks);
        data_stages_close(&s);
        if (st) return status_prefix(st, "data.stage.%zu", i - 1);
    }
    return STATUS_OK;
}

static enum status check_init_std(const struct model_config *m)
{
    if (m->init_std < FLT_MIN)
        FAIL(CONFIG, "model.init_std = %g: must be from %g to 10", m->init_std, (double)FLT_MIN);
    return STATUS_OK;
}

enum status config_check(const struct config *c, int num_ranks)
{
    TRY(check_elastic(c));
    TRY(check_layout(c, num_ranks));
    TRY(check_schedule(c));
    TRY(check_init_std(&c->model));
    TRY(check_data(c));
    TRY(check_optimizer(c));
    TRY(check_checkpoints(c));
    TRY(check_guard(c));
    TRY(check_replay(c));
    TRY(check_float8(c));
    return check_stages(c, num_ranks);
}

bool config_has_validation_data(const struct config *c)
{
    bool split = c->data.order == ORDER_megatron; /* data.split holds out documents */
    return c->validation.dataset_path[0] || c->data.validation_share > 0 || split;
}
