/* data_config.h -- the options of [data], [[data.source]], [[data.stage]] and [objective]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define OPT OPT_ENUM
#include "data/data.opts"
#include "data/objective.opts"
#include "data/stage.opts"
#undef OPT

#define OPT OPT_FIELD
struct source_config {
#include "data/source.opts"
    char key[40];      /* the option that has the path, for messages; "": the command line */
    bool may_be_empty; /* only warn of files without documents */
};
struct stage_config {
#include "data/stage.opts"
};
struct data_config {
#include "data/data.opts"
    struct source_config *sources; /* [[data.source]], in file order; borrowed */
    size_t num_sources;
    struct stage_config *stages; /* [[data.stage]]; borrowed */
    size_t num_stages;
};
struct objective_config {
#include "data/objective.opts"
};
#undef OPT

/* What messages call a source. */
static inline const char *data_config_label(const struct source_config *s)
{
    return s->name && s->name[0] ? s->name : s->path;
}
