// SPDX-License-Identifier: Apache-2.0
#include "tensor/blockwise.h"

#include "base/file.h"
#include "test.h"

enum { N = 1000, BLOCKS = 4 };

/* What tests/oracle/blockwise.py has bitsandbytes quantize. */
static float number(uint32_t i, bool is_signed)
{
    uint32_t bits = i * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    float x = ((float)(bits >> 8) + 1) / (float)(1 << 24);
    for (uint32_t k = 0; k < i % 8; k++) x *= 0.1f;
    return is_signed && i % 3 == 0 ? -x : x;
}

struct oracle {
    float values[BLOCKWISE_CODES];
    uint8_t codes[N];
    float largest[BLOCKS];
};

static void read_oracle(bool is_signed, struct oracle *o)
{
    FILE *f = fopen(is_signed ? "tests/tensor/data/blockwise-signed.bin"
                              : "tests/tensor/data/blockwise-unsigned.bin",
                    "rb");
    CHECK(f && fread(o, sizeof *o, 1, f) == 1);
    fclose(f);
}

static float *make_numbers(bool is_signed)
{
    float *x = heap(N * sizeof *x);
    for (uint32_t i = 0; i < N; i++) x[i] = number(i, is_signed);
    return x;
}

static size_t block_size(size_t block) { return block + 1 < BLOCKS ? 256 : N % 256; }

static void quantize(const struct blockwise_map *map, const float *x, uint8_t *codes, float *scales)
{
    for (size_t b = 0; b < BLOCKS; b++)
        blockwise_quantize(map, x + 256 * b, block_size(b), codes + 256 * b, &scales[b]);
}

static void dequantize(const struct blockwise_map *map, const uint8_t *codes, const float *scales,
                       float *x)
{
    for (size_t b = 0; b < BLOCKS; b++)
        blockwise_dequantize(map, codes + 256 * b, block_size(b), scales[b], x + 256 * b);
}

TEST(maps_are_those_of_bitsandbytes)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        struct blockwise_map map;
        struct oracle o;
        read_oracle(is_signed, &o);
        blockwise_map_init(&map, is_signed);
        for (int c = 0; c < BLOCKWISE_CODES; c++) {
            double want = (double)o.values[c];
            CHECK(fabs((double)map.value[c] - want) <= 3e-7 * fabs(want));
        }
    }
}

/* Where the largest element is positive; other blocks are those of -x.  Only zeros differ, since
 * bitsandbytes rounds small numbers to 0. */
TEST(codes_are_those_of_bitsandbytes_but_never_round_to_zero)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        struct blockwise_map map;
        struct oracle o;
        float *x = make_numbers(is_signed), scales[BLOCKS];
        uint8_t codes[N];
        int zero = is_signed ? 127 : 0, num_zeros = 0, want_zeros = 0, positive = 0;
        read_oracle(is_signed, &o);
        blockwise_map_init(&map, is_signed);
        quantize(&map, x, codes, scales);
        for (int i = 0; i < N; i++) {
            CHECK(fabsf(scales[i / 256]) == o.largest[i / 256]);
            if (scales[i / 256] < 0) continue;
            positive++, want_zeros += o.codes[i] == zero;
            if (o.codes[i] == zero)
                num_zeros += codes[i] == (x[i] < 0 ? zero - 1 : zero + 1);
            else
                CHECK(codes[i] == o.codes[i]);
        }
        CHECK(positive > N / 3 && num_zeros > 0 && num_zeros == want_zeros);
        free(x);
    }
}

/* All codes, checked without the search for a power of ten. */
TEST(a_number_gets_the_code_of_the_nearest_value)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        struct blockwise_map map;
        blockwise_map_init(&map, is_signed);
        for (int c = 1; c < BLOCKWISE_CODES; c++) {
            float above = map.above[c], next = nextafterf(above, 2);
            CHECK(map.value[c - 1] < map.value[c]);
            CHECK(blockwise_code(&map, map.value[c]) == c);
            CHECK(blockwise_code(&map, map.value[c - 1]) == c - 1);
            CHECK(blockwise_code(&map, next) == c);
            if (is_signed || above > 0) CHECK(blockwise_code(&map, above) == c - 1);
        }
        CHECK(blockwise_code(&map, 1.0000001f) == 255);
        if (is_signed) CHECK(blockwise_code(&map, -1.0000001f) == 0);
    }
}

TEST(quantizing_dequantized_numbers_changes_nothing)
{
    static const float factors[] = {1, -1, 3e-7f, 1e-29f, 1e30f};
    for (int is_signed = 0; is_signed < 2; is_signed++)
        for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
            if (!is_signed && factors[f] < 0) continue;
            struct blockwise_map map;
            float *x = make_numbers(is_signed), back[N], again[N], scales[BLOCKS], scales2[BLOCKS];
            uint8_t codes[N], codes2[N];
            for (int i = 0; i < N; i++) x[i] *= factors[f];
            blockwise_map_init(&map, is_signed);
            quantize(&map, x, codes, scales);
            dequantize(&map, codes, scales, back);
            quantize(&map, back, codes2, scales2);
            dequantize(&map, codes2, scales2, again);
            CHECK(!memcmp(codes, codes2, sizeof codes) && !memcmp(scales, scales2, sizeof scales));
            CHECK(!memcmp(back, again, sizeof back));
            for (int i = 0; i < N; i++) {
                /* Half a cell of the largest decade. */
                double half = fabs((double)scales[i / 256]) * (is_signed ? 0.0071 : 0.0036);
                CHECK(fabs((double)(back[i] - x[i])) <= half && back[i] != 0);
            }
            free(x);
        }
}

TEST(a_block_of_zeros_or_of_tiny_numbers_becomes_zeros)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        struct blockwise_map map;
        float x[3] = {0, 0, 0}, back[3], scale = 1;
        uint8_t codes[3] = {9, 9, 9};
        blockwise_map_init(&map, is_signed);
        for (int tiny = 0; tiny < 2; tiny++) {
            x[1] = tiny ? 7e-31f : 0, x[2] = tiny && is_signed ? -7.5e-31f : 0;
            blockwise_quantize(&map, x, 3, codes, &scale);
            blockwise_dequantize(&map, codes, 3, scale, back);
            CHECK(scale == 0 && !codes[0] && !codes[1] && !codes[2]);
            for (int i = 0; i < 3; i++) CHECK(back[i] == 0 && !signbit(back[i]));
        }
    }
}
