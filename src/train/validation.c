// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include "base/activity.h"
#include "base/clock.h"
#include "metrics/memory.h"
#include "train/inputs.h"

static const struct comm *group(const struct validation *v, enum group g)
{
    return &v->trainer->machine.groups.of[g];
}

static enum status run_loss(const struct validation *v)
{
    const struct config *c = v->config;
    struct trainer *t = v->trainer;
    const struct comm *world = group(v, GROUP_world);
    const char *path = c->validation.dataset_path;
    struct source_config source;
    struct data_config data =
        path[0] ? inputs_data_of_path(c, path, c->validation.column, &source) : *v->data;
    if (path[0]) data.validation_share = 0, data.order = ORDER_streams;
    struct loader_options o =
        inputs_loader_options(c, &t->machine.mesh, &data, v->tokenizer, t->shape.V);
    o.seq_len = trainer_validation_tokens(c);
    o.prefetch_rows = 0;
    o.validation = !path[0];
    o.once = true;
    int64_t batches = c->validation.steps;
    if (t->elastic.canonical && batches > 0) { /* the same rows on any number of ranks */
        o.max_rows = batches * c->validation.local_batch_size;
        batches = -1;
    }
    struct loader *loader = NULL;
    struct evaluation e;
    enum status st = STATUS_OK;
    double begin = clock_monotonic_s();
    bool reads = group(v, GROUP_peers)->rank == 0;
    activity_enter(ACTIVITY_preparing);
    TRY_OUT(comm_agree(world, reads ? loader_open(&loader, &o) : STATUS_OK));
    activity_enter(ACTIVITY_validating);
    TRY_OUT(evaluator_run(&t->evaluator, loader, batches, &t->step, &e));
    TRY_OUT(stop_check(v->stop)); /* it may have ended early: its mean is not the loss then */
    TRY_OUT(skipped_records_validated(v->skipped, loader, t->steps_done, world));
    /* All ranks found the same number of tokens: only one needs to report it. */
    TRY_OUT(comm_agree(world, world->rank ? STATUS_OK : evaluator_check_tokens(&e, "validation")));
    int64_t memory;
    TRY_OUT(memory_most_used(t->machine.queue, world, &memory));
    if (v->metrics)
        metrics_validation(v->metrics, t->steps_done, e.loss_sum / (double)e.tokens,
                           clock_monotonic_s() - begin, e.tokens, memory);
out:
    loader_close(loader);
    return st;
}

enum status validation_run(const struct validation *v)
{
    stop_begin(v->stop);
    if (config_has_validation_data(v->config)) TRY(run_loss(v));
    activity_enter(ACTIVITY_validating);
    TRY(task_validation_run(v->tasks, v->trainer, v->metrics));
    TRY(stop_check(v->stop)); /* they may have ended early, too */
    return STATUS_OK;
}
