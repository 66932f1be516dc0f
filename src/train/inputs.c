// SPDX-License-Identifier: Apache-2.0
#include "train/inputs.h"

#include "hub/hub.h"
#include "train/run.h"

enum status inputs_fetch_tokenizer(const struct config *c, const struct comm *world)
{
    TRY(hub_fetch(run_tokenizer_path(c), HUB_TOKENIZER, world));
    return STATUS_OK;
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
