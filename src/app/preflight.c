// SPDX-License-Identifier: Apache-2.0
#include "app/preflight.h"

#include "train/inputs.h"

enum status preflight(struct preflight *p, const struct config *c, int num_ranks)
{
    *p = (struct preflight){0};
    struct source_config one;
    struct loader *loader = NULL;
    struct data_config d = inputs_data_config(c, &one);
    enum status st = STATUS_OK;
    TRY(config_check(c, num_ranks));
    TRY(mesh_resolve(&p->mesh, &c->parallelism, 0, num_ranks));
    TRY_OUT(inputs_fetch(c, comm_self()));
    TRY_OUT(inputs_open_tokenizer(c, false, &p->tokenizer));
    TRY_OUT(model_shape_resolve(&p->shape, &c->model,
                                p->tokenizer ? tokenizer_vocab_size(p->tokenizer) : 0));
    TRY_OUT(config_fit(c, &p->shape, &p->mesh));
    struct loader_options o = inputs_loader_options(c, &p->mesh, &d, p->tokenizer, p->shape.V);
    o.prefetch_rows = 0;
    TRY_OUT(loader_open(&loader, &o));
    loader_close(loader);
out:
    return st;
}

void preflight_release(struct preflight *p)
{
    tokenizer_close(p->tokenizer);
    p->tokenizer = NULL;
}
