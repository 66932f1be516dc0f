// SPDX-License-Identifier: Apache-2.0
#include "app/preflight.h"

#include "base/log.h"
#include "hub/hub.h"
#include "train/inputs.h"

#include <stdlib.h>
#include <string.h>

enum status preflight_ranks(const struct config *c, int64_t requested, int *num_ranks)
{
    enum { MAX_RANKS = 1 << 24 };
    bool given = requested != -1;
    int64_t ranks = given ? requested : mesh_min_ranks(&c->parallelism);
    if (ranks < 1 || ranks > MAX_RANKS)
        FAIL(USAGE, "--ranks: must be between 1 and 2^24, is %lld%s", (long long)ranks,
             given ? "" : ", the product of the parallel degrees");
    *num_ranks = (int)ranks;
    return STATUS_OK;
}

/* Keeps the sources that can be opened now. */
static enum status find_data(struct preflight *p, const struct config *c, struct data_config *d)
{
    size_t count = d->num_sources, found = 0;
    const char **paths = heap((count + 1) * sizeof *paths);
    bool *here = heap((count + 1) * sizeof *here);
    struct text report = {0};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < count; i++) paths[i] = d->sources[i].path;
    paths[count] = c->validation.enable ? c->validation.dataset_path : "";
    TRY_OUT(hub_look(paths, count + 1, here, &report));
    p->data_checked = here[count];
    for (size_t i = 0; i < count; i++) {
        if (here[i]) d->sources[found++] = d->sources[i];
        p->data_checked = p->data_checked && here[i];
    }
    p->has_source = here, here = NULL;
    d->num_sources = found;
    if (!p->data_checked)
        log_line(LOG_WARN, "data not checked: %s; `llamero fetch PATH` downloads it", report.data);
out:
    text_release(&report);
    free(paths), free(here);
    return st;
}

static enum status check_data(struct preflight *p, const struct config *c,
                              const struct tokenizer *t)
{
    struct source_config one, *sources = NULL;
    struct loader *loader = NULL;
    struct data_config d = inputs_data_config(c, &one);
    enum status st = STATUS_OK;
    sources = heap(d.num_sources * sizeof *sources);
    memcpy(sources, d.sources, d.num_sources * sizeof *sources);
    d.sources = sources;
    TRY_OUT(find_data(p, c, &d));
    struct loader_options o = inputs_loader_options(c, &p->mesh, &d, t, p->shape.V);
    o.prefetch_rows = 0;
    if (d.num_sources) TRY_OUT(loader_open(&loader, &o));
    loader_close(loader);
out:
    free(sources);
    return st;
}

enum status preflight(struct preflight *p, const struct config *c, int num_ranks)
{
    *p = (struct preflight){0};
    enum status st = STATUS_OK;
    TRY(config_check(c, num_ranks));
    TRY(mesh_resolve(&p->mesh, &c->parallelism, 0, num_ranks));
    TRY_OUT(inputs_fetch_tokenizer(c, comm_self()));
    TRY_OUT(inputs_open_tokenizer(c, false, &p->tokenizer));
    TRY_OUT(model_shape_resolve(&p->shape, &c->model,
                                p->tokenizer ? tokenizer_vocab_size(p->tokenizer) : 0));
    TRY_OUT(config_fit(c, &p->shape, &p->mesh));
    TRY_OUT(check_data(p, c, p->tokenizer));
out:
    return st;
}

void preflight_release(struct preflight *p)
{
    tokenizer_close(p->tokenizer);
    free(p->has_source);
    p->tokenizer = NULL, p->has_source = NULL;
}
