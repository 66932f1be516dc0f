/* data_stats.h -- `data stats`: what the sources of a configuration, or some files, hold. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

#include <stddef.h>

struct data_stats_flags {
    const char *svg; /* "": none */
    int64_t sample;  /* bytes of each source; 0: all */
    bool json;
};

/* Prints the statistics of c's sources, or if `count` is not 0 of those paths, which it reads with
 * c's tokenizer, data.column, data.bos and data.eos.  DATA: a file is damaged. */
enum status data_stats(const struct config *c, const char *const *paths, size_t count,
                       const struct data_stats_flags *flags);
