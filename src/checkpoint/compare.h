/* compare.h -- in what two folders of models differ: tensors, moments, config.json, state.json.
 *
 * Memory   A megabyte of numbers of either, however large the model. */
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
    char *name;            /* a tensor's, or "config.json: rope_theta"; owned */
    double most, relative; /* NUMBERS: max |a - b|, and |a - b| / |a| by 2-norms; INFINITY: NaN */
    char *first, *second;  /* SHAPE, VALUE: what either has; owned, or NULL */
};

struct comparison {
    struct difference *all;
    size_t count;
    int64_t num_tensors, num_elements; /* compared */
};

/* Of any two of whatever convert reads; the bytes are not held against checksums.  After a failure,
 * too, release it. */
enum status comparison_make(struct comparison *c, const char *first, const char *second);
void comparison_release(struct comparison *c);
