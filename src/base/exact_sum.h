/* exact_sum.h -- sums of doubles without rounding errors, which therefore depend neither on the
 * order of their terms nor on how these are divided among ranks (a superaccumulator).
 *
 * A sum is a fixed-point number of 67 digits of 32 bits, which covers the whole range of double.
 * Sums of several ranks are added digit by digit.
 * Sources  Kulisch and Miranker 1986; Neal 2015, "Fast exact summation using small and large
 *          superaccumulators", arXiv:1505.05571. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

enum {
    EXACT_SUM_DIGITS = 67,
    EXACT_SUM_INTS = EXACT_SUM_DIGITS + 3 /* and how many terms are NaN, +infinity, -infinity */
};

struct exact_sum {
    int64_t ints[EXACT_SUM_INTS]; /* the lowest digit, of weight 2^-1074, first */
    int64_t pending;              /* terms since digits were last carried */
};

/* s += x.  Any number of terms is possible. */
void exact_sum_add(struct exact_sum *s, double x);
/* Makes every digit but the highest a number from 0 to 2^32 - 1.  Then the integers of up to 2^30
 * sums can be added (comm_all_reduce_int64). */
void exact_sum_carry(struct exact_sum *s);
/* The sum, with an error of a few units of its last place; the same bits for equal sums. */
double exact_sum_value(const struct exact_sum *s);
