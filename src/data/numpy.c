// SPDX-License-Identifier: Apache-2.0
#include "data/numpy.h"

enum { WORDS = 624, MIDDLE = 397 };

void numpy_random_init(struct numpy_random *r, uint32_t seed)
{
    uint32_t *x = r->state;
    x[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) x[i] = 1812433253u * (x[i - 1] ^ x[i - 1] >> 30) + i;
    r->used = WORDS;
}

uint32_t numpy_random_word(struct numpy_random *r)
{
    uint32_t *x = r->state;
    if (r->used == WORDS) {
        for (int i = 0; i < WORDS; i++) {
            uint32_t y = (x[i] & 0x80000000u) | (x[(i + 1) % WORDS] & 0x7fffffffu);
            x[i] = x[(i + MIDDLE) % WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        r->used = 0;
    }
    uint32_t y = x[r->used++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* NumPy's legacy random_interval: uniform in [0, max] by masked rejection; draws nothing for 0. */
static uint32_t random_interval(struct numpy_random *r, uint32_t max)
{
    if (!max) return 0;
    uint32_t mask = UINT32_MAX >> __builtin_clz(max), value;
    do {
        value = numpy_random_word(r) & mask;
    } while (value > max);
    return value;
}

void numpy_shuffle(struct numpy_random *r, uint32_t *values, uint64_t count)
{
    for (uint64_t i = count; i > 1; i--) {
        uint32_t j = random_interval(r, (uint32_t)(i - 1)), kept = values[i - 1];
        values[i - 1] = values[j];
        values[j] = kept;
    }
}

__extension__ typedef unsigned __int128 wide;
#define WIDE(high, low) ((wide)(high) << 64 | (low))

static uint64_t pcg64_next(wide *state)
{
    const wide factor = WIDE(2549297995355413924u, 4865540595714422341u);
    const wide step = WIDE(4723672219303484034u, 6377435431028945833u); /* of seed 0 */
    *state = *state * factor + step;
    uint64_t x = (uint64_t)(*state >> 64) ^ (uint64_t)*state;
    int rotation = (int)(*state >> 122);
    return x >> rotation | x << (-rotation & 63);
}

void numpy_mock_lengths(int32_t *lengths, size_t count)
{
    enum { BELOW = 4095 };
    wide state = WIDE(1919014152682489133u, 673392287158723043u); /* of seed 0 */
    uint64_t drawn = 0;
    for (size_t i = 0, halves = 0; i < count;) {
        drawn = halves++ % 2 ? drawn >> 32 : pcg64_next(&state);
        uint64_t scaled = (uint32_t)drawn * (uint64_t)BELOW;
        if ((uint32_t)scaled < (UINT32_MAX - (BELOW - 1)) % BELOW) continue;
        lengths[i++] = (int32_t)(scaled >> 32) + 1;
    }
}

double numpy_sum(const double *values, size_t count)
{
    enum { LANES = 8, BLOCK = 128 };
    if (count > BLOCK) {
        size_t half = count / 2 / LANES * LANES;
        return numpy_sum(values, half) + numpy_sum(values + half, count - half);
    }
    double sum = 0, s[LANES];
    size_t i = 0;
    if (count >= LANES) {
        for (; i < LANES; i++) s[i] = values[i];
        for (; i + LANES <= count; i += LANES)
            for (size_t j = 0; j < LANES; j++) s[j] += values[i + j];
        sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
    for (; i < count; i++) sum += values[i];
    return sum;
}
