// SPDX-License-Identifier: Apache-2.0
#include "base/normal.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { PAIRS = RNG_FILL };

/* By the C library.  `stream` is that of the struct, or one for another attempt. */
static void draw_pair(const struct normal_stream *s, uint64_t stream, uint64_t position,
                      double pair[2])
{
    struct rng_block b = rng_bits(s->seed, s->purpose, stream, position);
    double u = (double)((uint64_t)b.bits[0] << 21 | b.bits[1] >> 11) * 0x1p-53;
    double radius = sqrt(-2.0 * log(1.0 - u));
    double angle =
        6.283185307179586 * 0x1p-53 * (double)((uint64_t)b.bits[2] << 21 | b.bits[3] >> 11);
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}

static float draw_element(const struct normal_stream *s, uint64_t element)
{
    double pair[2];
    draw_pair(s, s->stream, element / 2 * 2, pair);
    double x = pair[element % 2];
    for (uint64_t attempt = 1; fabs(x) > s->limit; attempt++) {
        draw_pair(s, s->stream | attempt << 32, element, pair);
        x = pair[0];
    }
    return (float)(x * s->std);
}

/* The 53 upper bits of 64 as a fraction in [0, 1), from parts that an int32_t can hold: vectors
 * convert those. */
static inline double fraction(uint32_t high, uint32_t low)
{
    int32_t upper = (int32_t)(high >> 1), lower = (int32_t)((high & 1) << 21 | low >> 11);
    return upper * 0x1p-31 + lower * 0x1p-53;
}

/* log(x) for x in (0, 1]: x = m 2^e, m in [sqrt(1/2), sqrt(2)), log(m) = 2 atanh(s),
 * s = (m - 1) / (m + 1); the series of atanh to s^19 has a relative error below 2^-52. */
static inline double log_series(double x)
{
    const uint64_t root_half = UINT64_C(0x3FE6A09E667F3BCD), one = UINT64_C(0x3FF0000000000000);
    const uint64_t two_52 = UINT64_C(0x4330000000000000);
    uint64_t bits, mantissa, exponent;
    double m, e;
    memcpy(&bits, &x, sizeof bits);
    bits += one - root_half;
    exponent = bits >> 52 | two_52;
    mantissa = (bits & ((UINT64_C(1) << 52) - 1)) + root_half;
    memcpy(&e, &exponent, sizeof e), memcpy(&m, &mantissa, sizeof m);
    e -= 0x1p52 + 1023;
    double s = (m - 1) / (m + 1), z = s * s, sum = 1.0 / 19;
    sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    sum = sum * z + 1;
    return e * 0.6931471805599453 + 2 * s * sum;
}

/* Taylor series for |a| <= pi / 4, with an error below 2^-53. */
static inline double sin_series(double a)
{
    double z = a * a, sum = -1.0 / 1307674368000;
    sum = sum * z + 1.0 / 6227020800;
    sum = sum * z - 1.0 / 39916800;
    sum = sum * z + 1.0 / 362880;
    sum = sum * z - 1.0 / 5040;
    sum = sum * z + 1.0 / 120;
    sum = sum * z - 1.0 / 6;
    return a + a * z * sum;
}

static inline double cos_series(double a)
{
    double z = a * a, sum = 1.0 / 20922789888000;
    sum = sum * z - 1.0 / 87178291200;
    sum = sum * z + 1.0 / 479001600;
    sum = sum * z - 1.0 / 3628800;
    sum = sum * z + 1.0 / 40320;
    sum = sum * z - 1.0 / 720;
    sum = sum * z + 1.0 / 24;
    sum = sum * z - 0.5;
    return 1 + z * sum;
}

/* Cosine and sine of a number of turns in [0, 1). */
static inline void turn(double v, double *cosine, double *sine)
{
    double quarter = (double)(int32_t)(4 * v + 0.5);
    double a = 6.283185307179586 * (v - 0.25 * quarter), c = cos_series(a), s = sin_series(a);
    bool is_odd = quarter == 1 || quarter == 3;
    double x = is_odd ? s : c, y = is_odd ? c : s;
    *cosine = quarter == 1 || quarter == 2 ? -x : x;
    *sine = quarter == 2 || quarter == 3 ? -y : y;
}

struct normal_tile {
    uint32_t bits[4][PAIRS];
    double radius[PAIRS], cosine[PAIRS], sine[PAIRS];
};

/* Rounds x with deviation std; 0 where an error of `error` could change the result. */
static inline float round_certain(double x, double error, double std, double limit)
{
    float low = (float)((x - error) * std), high = (float)((x + error) * std);
    return low == high && fabs(x) + error <= limit ? low : 0;
}

/* Elements of `pairs` pairs, the first of which begins at element `first`. */
static void fill_tile(const struct normal_stream *s, uint64_t first, int pairs, float *w)
{
    /* Radius, cosine and sine have relative or absolute errors below 2^-49 here and in libm. */
    const double error = 0x1p-46, std = s->std, limit = s->limit;
    struct normal_tile t;
    int uncertain = 0;
    rng_fill(s->seed, s->purpose, s->stream, &(struct rng_positions){first, 2, pairs}, t.bits);
    for (int i = 0; i < pairs; i++)
        t.radius[i] = sqrt(-2 * log_series(1 - fraction(t.bits[0][i], t.bits[1][i])));
    for (int i = 0; i < pairs; i++)
        turn(fraction(t.bits[2][i], t.bits[3][i]), &t.cosine[i], &t.sine[i]);
    for (int i = 0; i < pairs; i++) {
        double r = t.radius[i];
        w[2 * i] = round_certain(r * t.cosine[i], r * error, std, limit);
        w[2 * i + 1] = round_certain(r * t.sine[i], r * error, std, limit);
    }
    for (int i = 0; i < 2 * pairs; i++) uncertain += w[i] == 0;
    for (int i = 0; uncertain && i < 2 * pairs; i++)
        if (w[i] == 0) w[i] = draw_element(s, first + (uint64_t)i), uncertain--;
}

void normal_fill(const struct normal_stream *s, uint64_t first, size_t count, float *w)
{
    const uint64_t end = first + count, begin = first / 2 * 2, step = 2 * PAIRS;
#pragma omp parallel for schedule(static) if (count > 2 * PAIRS)
    for (uint64_t at = begin; at < end; at += step) {
        float tile[2 * PAIRS];
        uint64_t from = at < first ? first : at, to = end - at < step ? end : at + step;
        fill_tile(s, at, (int)((to - at + 1) / 2), tile);
        memcpy(w + (from - first), tile + (from - at), (to - from) * sizeof *tile);
    }
}
