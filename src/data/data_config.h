/* data_config.h -- the options of [data], [[data.source]] and [objective]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define OPT OPT_ENUM
#include "data/data.opts"
#include "data/objective.opts"
#undef OPT

#define OPT OPT_FIELD
struct source_config {
#include "data/source.opts"
};
struct data_config {
#include "data/data.opts"
    struct source_config *sources; /* [[data.source]], in file order; borrowed */
    size_t num_sources;
};
struct objective_config {
#include "data/objective.opts"
};
#undef OPT
