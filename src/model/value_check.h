/* value_check.h -- whether values can belong to a model in training: finite, not negative in second
 * moments, and of a plausible size.
 *
 * A checkpoint's values are checked when they are loaded and when they are saved.
 * Bounds   |weight| <= 1e6: AdamW changes a weight by about the learning rate per step, so only
 *          corruption or divergence gets there.  |exp_avg| <= 1e6 and exp_avg_sq <= 1e12: moments
 *          of gradients up to 1e6, where clipping allows 1.  Gradients need only be finite. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "model/layout.h"
#include "tensor/dtype.h"

enum value_kind {
    VALUE_WEIGHT,
    VALUE_EXP_AVG,
    VALUE_EXP_AVG_SQ,
    VALUE_EMA,
    VALUE_GRADIENT,
    VALUE_KINDS
};

/* Index of the first of n values that cannot be of that kind; n: all can.  dtype F32 or BF16. */
size_t value_check_find(enum value_kind kind, enum dtype dtype, const void *x, size_t n);

/* Values of one kind that are checked in parts. */
struct value_check {
    enum value_kind kind;
    enum dtype dtype;
    /* The first bad value so far: */
    bool is_bad;
    size_t element;
    double value;
};
/* Checks n elements from `first` on, which are at x.  Threads may check parts at the same time. */
void value_check_part(struct value_check *c, size_t first, const void *x, size_t n);

/* An element that value_check_find found. */
struct bad_element {
    enum value_kind kind;
    const struct tensor_slot *tensor; /* NULL: `name` names it */
    const char *name;                 /* suffix included */
    size_t element;
    double value;
};

/* Appends "model.norm.weight: element 3 is nan, expected a finite value of at most 1e+06 in
 * magnitude". */
void value_check_describe(const struct bad_element *bad, struct text *out);
/* Fails with `st` and "WHERE: tensor " before that text. */
enum status value_check_fail(enum status st, const char *where, const struct bad_element *bad);
