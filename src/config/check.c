/* check.c -- rules that join several keys. */
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "config/config.h"
#include "parallel/fit.h"

#include <string.h>

enum status config_fit(const struct config *c, const struct model_shape *shape,
                       const struct mesh *mesh)
{
    const struct training_config *t = &c->training;
    const struct validation_config *v = &c->validation;
    struct fit f = {
        .mesh = mesh,
        .shape = shape,
        .section = "training",
        .seq_len = t->seq_len,
        .local_batch_size = t->local_batch_size,
        .global_batch_size = t->global_batch_size,
        .micro_batch_size = t->local_batch_size,
        .causal = strcmp(c->objective.name, "masked") != 0,
        .stages = {.split = SPLIT_first, .chunks = 1, .first_less = 1, .last_less = 1},
        .schedule = {.kind = SCHEDULE_one_ahead, .chunks = 1, .micros = 1},
    };
    TRY(fit_check(&f));
    if (!v->enable) return STATUS_OK;
    f.section = "validation";
    f.seq_len = v->seq_len ? v->seq_len : t->seq_len;
    f.local_batch_size = f.micro_batch_size = v->local_batch_size;
    f.global_batch_size = -1;
    return fit_check(&f);
}

static enum status check_layout(const struct config *c, int num_ranks)
{
    const struct training_config *t = &c->training;
    struct mesh mesh;
    TRY(mesh_resolve(&mesh, &c->parallelism, 0, num_ranks));
    if (t->global_batch_size == 0 || t->global_batch_size < -1)
        FAIL(CONFIG, "training.global_batch_size = %lld: -1 or at least 1",
             (long long)t->global_batch_size);
    return config_fit(c, NULL, &mesh);
}

static enum status check_schedule(const struct config *c)
{
    const struct lr_scheduler_config *s = &c->lr_scheduler;
    int64_t total = s->total_steps ? s->total_steps : c->training.steps;
    if (s->warmup_steps > total && strcmp(s->formula, "torchtitan"))
        FAIL(CONFIG, "lr_scheduler.warmup_steps = %lld is more than the %lld steps of the schedule",
             (long long)s->warmup_steps, (long long)total);
    if (s->decay_ratio < 0 && s->decay_ratio != -1)
        FAIL(CONFIG, "lr_scheduler.decay_ratio = %g: between 0 and 1, or -1", s->decay_ratio);
    if (c->optimizer.beta1 == 1 || c->optimizer.beta2 == 1)
        FAIL(CONFIG, "optimizer.beta1 and beta2 must be below 1");
    return STATUS_OK;
}

static enum status check_data(const struct config *c)
{
    double weights = 0;
    for (size_t i = 0; i < c->data.num_sources; i++) weights += c->data.sources[i].weight;
    if (c->data.num_sources && !(weights > 0))
        FAIL(CONFIG, "data.source: every weight is 0, so no document would ever be read");
    if (c->data.num_sources && c->training.dataset_path[0])
        FAIL(CONFIG,
             "training.dataset_path = \"%s\" and [[data.source]] both say what to read: one of "
             "them is wanted",
             c->training.dataset_path);
    if (!c->data.num_sources && !c->training.dataset_path[0])
        FAIL(CONFIG,
             "nothing to read: give a [[data.source]] with a path, or "
             "training.dataset_path (training.dataset = \"%s\" is only a name here)",
             c->training.dataset);
    if (!strcmp(c->objective.name, "masked") && !c->objective.mask_token[0])
        FAIL(CONFIG, "objective.name = \"masked\" needs objective.mask_token");
    if (!strcmp(c->objective.name, "masked") && !(c->objective.mask_probability > 0))
        FAIL(CONFIG, "objective.mask_probability = 0: no token would be predicted");
    const struct validation_config *v = &c->validation;
    if (v->enable && !v->dataset_path[0] && !(c->data.validation_share > 0))
        FAIL(CONFIG, "validation.enable = true needs validation.dataset_path or "
                     "data.validation_share");
    if (v->enable && v->steps == 0) FAIL(CONFIG, "validation.steps = 0: -1 or at least 1");
    return STATUS_OK;
}

static enum status check_checkpoints(const struct config *c)
{
    const struct checkpoint_config *k = &c->checkpoint;
    if (k->keep_latest_k == 1)
        FAIL(CONFIG, "checkpoint.keep_latest_k = 1: while the next one is written, the only one "
                     "might be all there is; keep 2, or 0 for all");
    if (!c->job.dump_folder[0]) FAIL(CONFIG, "job.dump_folder is empty");
    if (!k->folder[0]) FAIL(CONFIG, "checkpoint.folder is empty");
    return STATUS_OK;
}

/* What torchtitan's files may ask for and a run here does not do. */
static void tell_kept(const struct config *c)
{
    if (strcmp(c->training.dtype, "float32"))
        log_line(LOG_WARN, "training.dtype = \"%s\": master weights stay float32",
                 c->training.dtype);
    if (strcmp(c->training.mixed_precision_reduce, "float32"))
        log_line(LOG_WARN, "training.mixed_precision_reduce = \"%s\": gradient sums stay float32",
                 c->training.mixed_precision_reduce);
}

enum status config_check(const struct config *c, int num_ranks)
{
    TRY(check_layout(c, num_ranks));
    TRY(check_schedule(c));
    TRY(check_data(c));
    TRY(check_checkpoints(c));
    tell_kept(c);
    return STATUS_OK;
}
