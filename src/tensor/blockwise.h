/* blockwise.h -- block-wise dynamic quantization to 8 bits (Dettmers et al. 2022), the format in
 * which bitsandbytes' 8-bit optimizers store moments.
 *
 * Block    BLOCKWISE_BLOCK consecutive elements share a scale in f32; a tensor's last block may be
 *          shorter.  An element is the scale times one of 256 values from 0 to 1, or from -1 to 1
 *          if signed, spaced evenly within each power of ten; its code is the value's index.
 * Scale    The element of the largest magnitude with its sign, so that this element is exact.
 *          bitsandbytes' scale is the magnitude, which makes a negative one 0.7 % too small.
 * Order    Quantizing dequantized numbers gives the same codes and scales.  For that, a block below
 *          2^-100 becomes zeros, so that no number is subnormal.
 * Zero     Only 0 becomes 0: other elements that would round to it get the smallest value of their
 *          sign.  A block of zeros has scale 0 and codes 0. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLOCKWISE_BLOCK = 256, BLOCKWISE_CODES = 256, BLOCKWISE_DECADES = 7 };

/* A block whose largest magnitude is below becomes zeros. */
#define BLOCKWISE_MIN_SCALE 0x1p-100f

struct blockwise_map {
    float value[BLOCKWISE_CODES]; /* ascending */
    /* Code c is for numbers greater than above[c], up to above[c + 1]. */
    float above[BLOCKWISE_CODES + 1];
    bool is_signed;
};
/* bitsandbytes' create_dynamic_map(is_signed), to the last bits of f32. */
void blockwise_map_init(struct blockwise_map *map, bool is_signed);

/* The code of x, which is from -1 to 1, or from 0 to 1 if unsigned. */
static inline uint8_t blockwise_code(const struct blockwise_map *map, float x)
{
    float a = x < 0 ? -x : x;
    /* The power of ten, then a position within it: at most one code off. */
    int decade = (a > 1e-6f) + (a > 1e-5f) + (a > 1e-4f) + (a > 1e-3f) + (a > 1e-2f) + (a > 1e-1f);
    float up = a > 1e-3f   ? a > 1e-1f   ? 1
                             : a > 1e-2f ? 1e1f
                                         : 1e2f
               : a > 1e-5f ? a > 1e-4f ? 1e3f : 1e4f
               : a > 1e-6f ? 1e5f
                           : 1e6f;
    int count = 1 << (decade + !map->is_signed);
    int index = (int)((a * up - 0.1f) * (float)count * (1 / 0.9f));
    index = index < 0 ? 0 : index < count ? index : count - 1;
    index += count - !map->is_signed;
    int code = map->is_signed ? 127 + (x < 0 ? -index : index) : index;
    code += x > map->above[code + 1];
    code -= !(x > map->above[code]);
    return (uint8_t)code;
}

/* Quantizes n elements, at most a block, and sets *scale. */
static inline void blockwise_quantize(const struct blockwise_map *map, const float *x, size_t n,
                                      uint8_t *codes, float *scale)
{
    float most = 0, least = 0;
    for (size_t i = 0; i < n; i++) {
        most = x[i] > most ? x[i] : most;
        least = x[i] < least ? x[i] : least;
    }
    float largest = most >= -least ? most : least, magnitude = largest < 0 ? -largest : largest;
    bool is_zero = magnitude < BLOCKWISE_MIN_SCALE;
    float inverse = is_zero ? 0 : 1 / largest;
    *scale = is_zero ? 0 : largest;
    for (size_t i = 0; i < n; i++) codes[i] = is_zero ? 0 : blockwise_code(map, x[i] * inverse);
}

static inline void blockwise_dequantize(const struct blockwise_map *map, const uint8_t *codes,
                                        size_t n, float scale, float *x)
{
    bool is_zero = scale >= 0 && scale <= 0; /* then 0, not -0 */
    for (size_t i = 0; i < n; i++) x[i] = is_zero ? 0 : map->value[codes[i]] * scale;
}

static inline size_t blockwise_num_blocks(size_t n)
{
    return n / BLOCKWISE_BLOCK + (n % BLOCKWISE_BLOCK != 0);
}
