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

struct validation_data {
    struct source_config source;
    struct data_config data;
};

/* How the loader reads the validation data.  v->data has [data] of the run, and becomes that of the
 * validation. */
static struct loader_options loader_options(const struct config *c, const struct mesh *mesh,
                                            const struct tokenizer *t, int vocab_size,
                                            struct validation_data *v)
{
    const char *path = c->validation.dataset_path;
    if (path[0]) {
        v->data = inputs_data_of_path(c, path, c->validation.column, &v->source);
        v->data.validation_share = 0, v->data.order = ORDER_streams;
    }
    struct loader_options o = inputs_loader_options(c, mesh, &v->data, t, vocab_size);
    o.seq_len = trainer_validation_tokens(c);
    o.prefetch_rows = 0;
    o.block = (int)c->validation.local_batch_size; /* a reader's rows of a batch */
    o.validation = !path[0];
    o.once = true;
    return o;
}

static enum status fail_empty(const struct config *c)
{
    const char *path = c->validation.dataset_path;
    if (path[0])
        FAIL(DATA,
             "validation.dataset_path = \"%s\": the data contains no tokens to predict; set other "
             "data, or validation.enable = false",
             path);
    FAIL(DATA,
         "the data contains no validation tokens to predict: data.validation_share = %g holds out "
         "too little of it; raise it, add data, or set validation.dataset_path or "
         "validation.enable = false",
         c->data.validation_share);
}

static void alloc_row(struct batch *b, const struct loader_options *o, struct arena *memory)
{
    batch_alloc(b, 1, o->seq_len, memory);
    if (o->objective->name == OBJECTIVE_diffusion) batch_alloc_weights(b, memory);
}

enum status validation_check(const struct config *c, const struct mesh *mesh,
                             const struct tokenizer *t, int vocab_size)
{
    struct validation_data v;
    struct loader *loader = NULL;
    struct batch b = {0};
    struct arena memory = {0};
    enum status st = STATUS_OK;
    if (!c->validation.enable || !config_has_validation_data(c)) return STATUS_OK;
    v.data = inputs_data_config(c, &v.source);
    struct loader_options o = loader_options(c, mesh, t, vocab_size, &v);
    o.reader = 0, o.num_readers = 1, o.is_quiet = true;
    TRY_OUT(loader_open(&loader, &o));
    alloc_row(&b, &o, &memory); /* a sizing pass */
    TRY_OUT(arena_init(&memory, memory.used, NULL));
    alloc_row(&b, &o, &memory);
    for (int rows = 1; rows && !b.valid;) TRY_OUT(loader_next(loader, &b, &rows));
    if (!b.valid) st = fail_empty(c);
out:
    loader_close(loader);
    arena_release(&memory);
    return st;
}

enum status validation_data_bytes(const struct config *c, const struct mesh *mesh,
                                  const struct tokenizer *t, int vocab_size, size_t *bytes)
{
    struct validation_data v;
    struct loader *loader = NULL;
    *bytes = 0;
    if (!c->validation.enable || !config_has_validation_data(c)) return STATUS_OK;
    v.data = inputs_data_config(c, &v.source);
    struct loader_options o = loader_options(c, mesh, t, vocab_size, &v);
    o.is_quiet = true;
    enum status st = loader_open(&loader, &o);
    if (!st) *bytes = (size_t)loader_memory_bytes(loader);
    loader_close(loader);
    return st;
}

static enum status run_loss(const struct validation *v)
{
    const struct config *c = v->config;
    struct trainer *t = v->trainer;
    const struct comm *world = group(v, GROUP_world);
    struct validation_data data = {.data = *v->data};
    struct loader_options o = loader_options(c, &t->machine.mesh, v->tokenizer, t->shape.V, &data);
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
    *v->loss = e.loss_sum / (double)e.tokens;
    if (v->metrics)
        metrics_validation(v->metrics, t->steps_done, *v->loss, clock_monotonic_s() - begin,
                           e.tokens, memory);
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
