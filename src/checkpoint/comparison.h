/* comparison.h -- differences between two model folders: tensors, moments, moving average,
 * config.json, state.json.
 *
 * Memory   A megabyte of elements of each, however large the model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum difference_kind {
    DIFFERENCE_ONLY_FIRST, /* the second folder lacks it */
    DIFFERENCE_ONLY_SECOND,
    DIFFERENCE_SHAPE,
    DIFFERENCE_NUMBERS,
    DIFFERENCE_VALUE, /* of a key of config.json or state.json */
};

struct difference {
    enum difference_kind kind;
    char *name;            /* of a tensor, "ema: TENSOR" or "config.json: rope_theta"; owned */
    double most, relative; /* NUMBERS: max |a - b|, and |a - b| / |a| in 2-norms; INFINITY: NaN */
    char *first, *second;  /* SHAPE, VALUE: each side's; owned, or NULL */
};

struct comparison {
    struct difference *all;
    size_t count;
    int64_t num_tensors, num_elements; /* compared */
};

/* Compares any two folders that `convert` reads, without verifying checksums.  Release `c` even
 * after a failure. */
enum status comparison_make(struct comparison *c, const char *first, const char *second);
void comparison_release(struct comparison *c);
