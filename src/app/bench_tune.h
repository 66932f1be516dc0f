/* bench_tune.h -- `llamero bench --tune`: times the GEMMs of configurations and keeps the fastest
 * variant of each in a file (tensor/tuning.h).  Nothing is trained. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

struct bench_tune {
    const char *file;           /* its entries are kept, and not timed again */
    const char *const *configs; /* files */
    int num_configs;
    const char *const *settings; /* section.key=value, for each of them */
    int num_settings;
};

/* The GEMMs are those of one rank, in every stage of the smallest mesh with the configuration's
 * degrees.  With several configurations, warns of those that fail.  USAGE: no
 * configuration. */
enum status bench_tune_run(const struct bench_tune *t);
