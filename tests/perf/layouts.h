/* layouts.h -- a small model on a described GPU, whose layouts tests compare. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/layout_search.h"

struct layouts {
    struct config config;
    struct model_shape shape;
    struct described_gpu gpu;
    struct cost_model model;
    struct layout_search search; /* of `ranks` ranks and step_rows rows, with tolerance 0 */
};

/* `settings`: up to 8, besides those of the model. */
void layouts_open(struct layouts *l, int ranks, int64_t step_rows, const char *const *settings,
                  int num_settings);
void layouts_close(struct layouts *l);
