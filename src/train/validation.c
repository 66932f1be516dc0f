// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/progress.h"
#include "metrics/memory.h"
#include "train/inputs.h"

struct validation_data {
    struct source_config source;
    struct data_config data;
    struct loader_options options;
};

/* How the loader reads the validation data.  v->data has [data] of the run, and becomes that of the
 * validation. */
static void set_options(const struct config *c, const struct mesh *mesh, const struct tokenizer *t,
                        int vocab_size, struct validation_data *v)
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
    v->options = o;
}

/* The same for a loader that logs nothing; false: the run has no validation data. */
static bool find_data(const struct config *c, const struct mesh *mesh, const struct tokenizer *t,
                      int vocab_size, struct validation_data *v)
{
    if (!c->validation.enable || !config_has_validation_data(c)) return false;
    v->data = inputs_data_config(c, &v->source);
    set_options(c, mesh, t, vocab_size, v);
    v->options.is_quiet = true;
    return true;
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
    if (!find_data(c, mesh, t, vocab_size, &v)) return STATUS_OK;
    v.options.reader = 0, v.options.num_readers = 1;
    TRY_OUT(loader_open(&loader, &v.options));
    alloc_row(&b, &v.options, &memory); /* a sizing pass */
    TRY_OUT(arena_init(&memory, memory.used, NULL));
    alloc_row(&b, &v.options, &memory);
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
    if (!find_data(c, mesh, t, vocab_size, &v)) return STATUS_OK;
    enum status st = loader_open(&loader, &v.options);
    if (!st) *bytes = (size_t)loader_memory_bytes(loader);
    loader_close(loader);
    return st;
}

/* How many tokens this rank will predict, at most; 0: unknown. */
static double expected_tokens(const struct validation *v, const struct loader_options *o)
{
    const struct config *c = v->config;
    if (c->validation.steps < 0) return 0;
    double rows = (double)c->validation.steps * (double)c->validation.local_batch_size;
    return rows * o->seq_len / (v->trainer->elastic.canonical ? o->num_readers : 1);
}

static enum status run_loss(const struct validation *v)
{
    const struct config *c = v->config;
    struct trainer *t = v->trainer;
    const struct comm *world = trainer_group(v->trainer, GROUP_world);
    struct validation_data data = {.data = *v->data};
    set_options(c, &t->machine.mesh, v->tokenizer, t->shape.V, &data);
    int64_t batches = c->validation.steps;
    double tokens = expected_tokens(v, &data.options);
    if (t->elastic.canonical && batches > 0) { /* the same rows on any number of ranks */
        data.options.max_rows = batches * c->validation.local_batch_size;
        batches = -1;
    }
    struct loader *loader = NULL;
    struct evaluation e;
    enum status st = STATUS_OK;
    double begin = clock_monotonic_s();
    bool reads = trainer_group(v->trainer, GROUP_peers)->rank == 0;
    activity_enter(ACTIVITY_preparing);
    TRY_OUT(comm_agree(world, reads ? loader_open(&loader, &data.options) : STATUS_OK));
    activity_enter(ACTIVITY_validating);
    progress_begin("validation", PROGRESS_TOKENS, tokens);
    st = evaluator_run(&t->evaluator, loader, batches, &t->step, &e);
    progress_end();
    TRY_OUT(st);
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
