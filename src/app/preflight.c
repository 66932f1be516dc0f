// SPDX-License-Identifier: Apache-2.0
#include "app/preflight.h"

#include "train/inputs.h"

enum status preflight(struct preflight *p, const struct config *c, int num_ranks)
{
    struct tokenizer *t = NULL;
    struct source_config one;
    struct loader *loader = NULL;
    struct data_config d = inputs_data_config(c, &one);
    enum status st = STATUS_OK;
    TRY(config_check(c, num_ranks));
    TRY(mesh_resolve(&p->mesh, &c->parallelism, 0, num_ranks));
    TRY_OUT(inputs_fetch(c, comm_self()));
    TRY_OUT(inputs_open_tokenizer(c, false, &t));
    TRY_OUT(model_shape_resolve(&p->shape, &c->model, t ? tokenizer_vocab_size(t) : 0));
    TRY_OUT(config_fit(c, &p->shape, &p->mesh));
    struct loader_options o = inputs_loader_options(c, &p->mesh, &d, t, p->shape.V);
    o.prefetch_rows = 0;
    TRY_OUT(loader_open(&loader, &o));
    loader_close(loader);
out:
    tokenizer_close(t);
    return st;
}
