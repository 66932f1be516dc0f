// SPDX-License-Identifier: Apache-2.0
#include "base/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { DIGIT_BITS = 32, LOWEST_BIT = -1074, NANS = EXACT_SUM_DIGITS, PLUS_INF, MINUS_INF };
static const uint64_t digit_mask = 0xFFFFFFFF;
static const int64_t max_pending = INT64_C(1) << 30; /* each adds less than 2^33 to a digit */

void exact_sum_add(struct exact_sum *s, double x)
{
    uint64_t bits;
    if (!isfinite(x)) {
        s->ints[isnan(x) ? NANS : x > 0 ? PLUS_INF : MINUS_INF]++;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    unsigned exponent = (unsigned)(bits >> 52) & 0x7FF;
    if (exponent)
        mantissa |= UINT64_C(1) << 52;
    else
        exponent = 1;
    unsigned position = exponent - 1, shift = position % DIGIT_BITS;
    int64_t *digit = &s->ints[position / DIGIT_BITS], sign = bits >> 63 ? -1 : 1;
    uint64_t low = (mantissa & digit_mask) << shift, high = (mantissa >> DIGIT_BITS) << shift;
    uint64_t middle = (low >> DIGIT_BITS) + (high & digit_mask);
    digit[0] += sign * (int64_t)(low & digit_mask);
    digit[1] += sign * (int64_t)middle;
    digit[2] += sign * (int64_t)(high >> DIGIT_BITS);
    if (++s->pending >= max_pending) exact_sum_carry(s);
}

void exact_sum_carry(struct exact_sum *s)
{
    for (int i = 0; i < EXACT_SUM_DIGITS - 1; i++) {
        int64_t digit = s->ints[i] & (int64_t)digit_mask;
        s->ints[i + 1] += (s->ints[i] - digit) / (INT64_C(1) << DIGIT_BITS);
        s->ints[i] = digit;
    }
    s->pending = 0;
}

double exact_sum_value(const struct exact_sum *s)
{
    struct exact_sum a = *s;
    double sum = 0;
    if (a.ints[NANS] || (a.ints[PLUS_INF] && a.ints[MINUS_INF])) return (double)NAN;
    if (a.ints[PLUS_INF] || a.ints[MINUS_INF])
        return a.ints[PLUS_INF] ? (double)INFINITY : -(double)INFINITY;
    exact_sum_carry(&a);
    bool is_negative = a.ints[EXACT_SUM_DIGITS - 1] < 0;
    for (int i = 0; i < EXACT_SUM_DIGITS && is_negative; i++) a.ints[i] = -a.ints[i];
    if (is_negative) exact_sum_carry(&a);
    for (int i = 0; i < EXACT_SUM_DIGITS; i++)
        sum += ldexp((double)a.ints[i], LOWEST_BIT + DIGIT_BITS * i);
    return is_negative ? -sum : sum;
}
