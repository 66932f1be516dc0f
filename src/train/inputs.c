// SPDX-License-Identifier: Apache-2.0
#include "train/inputs.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/torch_files.h"
#include "data/source.h"
#include "hub/hub.h"
#include "tasks/task_list.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

const char *inputs_tokenizer_path(const struct config *c)
{
    if (c->data.tokenizer[0]) return c->data.tokenizer;
    return c->model.tokenizer_path[0] ? c->model.tokenizer_path : c->model.hf_assets_path;
}

static const char *tokenizer_key(const struct config *c)
{
    if (c->data.tokenizer[0]) return "data.tokenizer";
    return c->model.tokenizer_path[0] ? "model.tokenizer_path" : "model.hf_assets_path";
}

/* The folder of initial_load_path's model if it has a tokenizer, else NULL; heap.  Weights of the
 * Hub may not be downloaded yet. */
static char *find_model_tokenizer(const struct config *c)
{
    char *path = NULL, *model = NULL, *folder = NULL;
    if (!c->checkpoint.initial_load_path[0]) return NULL;
    if (!hub_find(c->checkpoint.initial_load_path, &path))
        folder =
            torch_files_folder(checkpoint_locate(path, -1, comm_self(), &model) ? path : model);
    if (folder && !tokenizer_is_in(folder)) {
        free(folder);
        folder = NULL;
    }
    free(path), free(model);
    return folder;
}

/* No tokenizer is configured, so failing to fetch one is no error: the data may be token ids. */
static enum status fetch_model_tokenizer(const struct config *c, const struct comm *world)
{
    const char *path = c->checkpoint.initial_load_path;
    char *folder = find_model_tokenizer(c);
    bool found = folder != NULL;
    free(folder);
    int64_t missing = !found && hub_is_path(path);
    TRY(comm_all_reduce_int64(world, REDUCE_MAX, &missing, 1));
    if (missing && hub_fetch(path, HUB_TOKENIZER, world))
        log_line(LOG_WARN, "%s: cannot fetch a tokenizer: %s", path, status_message());
    return STATUS_OK;
}

enum status inputs_fetch_tokenizer(const struct config *c, const struct comm *world)
{
    const char *path = inputs_tokenizer_path(c);
    TRY(path[0] ? hub_fetch(path, HUB_TOKENIZER, world) : fetch_model_tokenizer(c, world));
    return STATUS_OK;
}

/* What the run's sources hold.  The loader reports sources that cannot be opened. */
struct held_data {
    bool ids;    /* only token IDs, for which a tokenizer is optional */
    bool counts; /* only spike counts, which need no tokenizer */
};

static struct held_data find_held_data(const struct config *c)
{
    struct source_config one;
    struct data_config d = inputs_data_config(c, &one);
    struct held_data all = {true, true};
    for (size_t i = 0; i < d.num_sources && all.ids; i++) {
        struct source s;
        if (source_open(&s, &d.sources[i])) return (struct held_data){0};
        all.ids &= s.holds_ids, all.counts &= source_holds_counts(&s);
        source_close(&s);
    }
    return all;
}

/* The weights may come from a model of text while the data is something else. */
static bool is_other_models_tokenizer(const struct config *c, const struct tokenizer *t)
{
    struct held_data data = find_held_data(c);
    bool fits = !c->model.vocab_size || tokenizer_vocab_size(t) <= c->model.vocab_size;
    return data.ids && (data.counts || !fits);
}

enum status inputs_open_tokenizer(const struct config *c, bool log, struct tokenizer **t)
{
    const char *path = inputs_tokenizer_path(c);
    char *folder = path[0] ? NULL : find_model_tokenizer(c);
    enum status st = STATUS_OK;
    *t = NULL;
    if (folder) TRY_OUT(tokenizer_open(t, folder, &c->tokenizer));
    if (path[0]) st = tokenizer_open(t, path, &c->tokenizer);
    if (st) TRY_OUT(status_prefix(st, "%s", tokenizer_key(c)));
    if (!folder) goto out;
    bool ignored = is_other_models_tokenizer(c, *t);
    if (log)
        log_line(LOG_INFO, "tokenizer: %s, found in checkpoint.initial_load_path%s",
                 tokenizer_path(*t),
                 ignored ? ", is not used: the data are token IDs of another vocabulary" : "");
    if (ignored) tokenizer_close(*t), *t = NULL;
out:
    free(folder);
    return st;
}

enum status inputs_fetch(const struct config *c, const struct comm *world)
{
    struct source_config one;
    struct data_config d = inputs_data_config(c, &one);
    TRY(inputs_fetch_tokenizer(c, world));
    for (size_t i = 0; i < d.num_sources; i++) TRY(hub_fetch(d.sources[i].path, HUB_DATA, world));
    if (!c->validation.enable) return STATUS_OK;
    TRY(hub_fetch(c->validation.dataset_path, HUB_DATA, world));
    const struct option_list *tasks = &c->validation.tasks;
    for (size_t i = 0; i < tasks->count; i++)
        TRY(hub_fetch(task_list_path(tasks->items[i]), HUB_DATA, world));
    return STATUS_OK;
}

struct data_config inputs_data_of_path(const struct config *c, const char *path, const char *column,
                                       struct source_config *one)
{
    struct data_config d = c->data;
    if (d.seed < 0) d.seed = c->debug.seed;
    if (!path) return d;
    bool is_training = path == c->training.dataset_path;
    bool is_validation = path == c->validation.dataset_path;
    *one = (struct source_config){.path = path, .column = column, .weight = 1};
    snprintf(one->key, sizeof one->key, "%s",
             is_training     ? "training.dataset_path"
             : is_validation ? "validation.dataset_path"
                             : "");
    d.sources = one;
    d.num_sources = 1;
    return d;
}

struct data_config inputs_data_config(const struct config *c, struct source_config *one)
{
    return inputs_data_of_path(c, c->data.num_sources ? NULL : c->training.dataset_path,
                               c->data.column, one);
}

void inputs_describe_padding(const struct config *c, const struct mesh *mesh, struct text *out)
{
    int64_t rows = config_step_rows(c, mesh), readers = trainer_readers(mesh);
    int64_t room = config_reader_rows(c, mesh, rows) * readers;
    if (room == rows) return;
    text_addf(out,
              "training.global_batch_size = %lld is not a multiple of the microbatches of %lld "
              "data-parallel ranks: they also compute %lld empty rows a step (%.1f %%)",
              (long long)rows, (long long)readers, (long long)(room - rows),
              100 * (double)(room - rows) / (double)room);
}

void inputs_skip_rows(const struct config *c, struct loader *l)
{
    const struct option_ranges *rows = &c->guard.skip_rows;
    for (size_t i = 0; i < rows->count; i++)
        loader_skip(l, (struct row_interval){(uint64_t)rows->items[i].first,
                                             (uint64_t)rows->items[i].last + 1});
}

struct loader_options inputs_loader_options(const struct config *c, const struct mesh *mesh,
                                            const struct data_config *data,
                                            const struct tokenizer *tokenizer, int vocab_size)
{
    const struct training_config *t = &c->training;
    const struct elastic elastic = config_elastic(c, mesh);
    int rows = trainer_rows(c, mesh);
    const struct batch_ramp ramp = batch_ramp_of(t, config_step_rows(c, mesh));
    return (struct loader_options){
        .data = data,
        .objective = &c->objective,
        .tokenizer = tokenizer,
        .vocab_size = vocab_size,
        .seq_len = (int)c->training.seq_len,
        .reader =
            mesh->at[AXIS_dp_replicate] * mesh->degree[AXIS_dp_shard] + mesh->at[AXIS_dp_shard],
        .num_readers = trainer_readers(mesh),
        .prefetch_rows = (int)c->data.prefetch * rows,
        .block = mesh->degree[AXIS_pp] > 1 ? (int)c->parallelism.pipeline_parallel_microbatch_size
                                           : (int)t->local_batch_size,
        .deal = elastic.canonical ? elastic_leaves(&elastic) : 0,
        .run_rows = batch_ramp_advance(&ramp, 0, t->steps),
    };
}
