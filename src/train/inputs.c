// SPDX-License-Identifier: Apache-2.0
#include "train/inputs.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/torch_files.h"
#include "hub/hub.h"
#include "train/run.h"

#include <stdlib.h>

/* The folder of initial_load_path's model, if it has a tokenizer; heap; else NULL.  Of the Hub's
 * the weights may not be here yet. */
static char *find_beside(const struct config *c)
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

/* Nobody named it: a run of token ids goes on without one. */
static enum status fetch_beside(const struct config *c, const struct comm *world)
{
    const char *path = c->checkpoint.initial_load_path;
    char *here = find_beside(c);
    bool has = here != NULL;
    free(here);
    double missing = !has && hub_is_path(path);
    if (world) TRY(comm_all_reduce(world, REDUCE_MAX, &missing, 1));
    if (missing > 0 && hub_fetch(path, HUB_TOKENIZER, world))
        log_line(LOG_WARN, "%s: no tokenizer was fetched: %s", path, status_message());
    return STATUS_OK;
}

enum status inputs_fetch_tokenizer(const struct config *c, const struct comm *world)
{
    const char *path = run_tokenizer_path(c);
    TRY(path[0] ? hub_fetch(path, HUB_TOKENIZER, world) : fetch_beside(c, world));
    return STATUS_OK;
}

enum status inputs_open_tokenizer(const struct config *c, bool tells, struct tokenizer **t)
{
    const char *path = run_tokenizer_path(c);
    char *beside = path[0] ? NULL : find_beside(c);
    enum status st = STATUS_OK;
    *t = NULL;
    if (path[0] || beside) TRY_OUT(tokenizer_open(t, beside ? beside : path, &c->tokenizer));
    if (beside && tells)
        log_line(LOG_INFO, "tokenizer: %s, which is beside checkpoint.initial_load_path",
                 tokenizer_path(*t));
out:
    free(beside);
    return st;
}

enum status inputs_fetch(const struct config *c, const struct comm *world)
{
    struct source_config one;
    struct data_config d = run_data_config(c, &one);
    TRY(inputs_fetch_tokenizer(c, world));
    for (size_t i = 0; i < d.num_sources; i++) TRY(hub_fetch(d.sources[i].path, HUB_DATA, world));
    if (c->validation.enable) TRY(hub_fetch(c->validation.dataset_path, HUB_DATA, world));
    return STATUS_OK;
}
