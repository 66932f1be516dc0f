/* tiles.h -- Intel AMX: eight tile registers of 16 rows x 64 bytes, and TDPBF16PS.
 *
 * Defines TILES where tiles are available: the ISA amx uses the instructions; where TILES_EMULATED
 * is defined (in tests, on any processor) plain C does the same, so that the AMX kernels are tested
 * against the reference everywhere.  Elsewhere tiles_open and tiles_close do nothing.
 * Tile numbers must be constants.  tiles_open loads the tile config, in which all tiles have full
 * size, and tiles_close releases it.
 * Source   Intel's manual, volume 1 chapter 18, and TDPBF16PS in volume 2. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__AMX_BF16__)
#define TILES
#include <immintrin.h>

static inline void tiles_open(void)
{
    struct {
        unsigned char palette, start_row, reserved[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } shape __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++) shape.row_bytes[i] = 64, shape.rows[i] = 16;
    __asm__ volatile("" ::"r"(&shape)
                     : "memory"); /* gcc 12 takes only part of the operand as read */
    _tile_loadconfig(&shape);
}
static inline void tiles_close(void) { _tile_release(); }

#define TILE_ZERO(t)               _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
/* TILELOADDT1: the same with a hint not to keep the data in L1, for data that is read once. */
#define TILE_STREAM(t, from, stride) _tile_stream_loadd(t, from, stride)
#define TILE_STORE(t, to, stride)    _tile_stored(t, to, stride)
/* f32 acc[i][j] += bf16 a[i][2k] * b[k][2j] + a[i][2k+1] * b[k][2j+1] over 16 k. AMX sums even and
 * odd k separately and treats subnormals as 0. */
#define TILE_DOT(sum, a, b) _tile_dpbf16ps(sum, a, b)

#elif defined(TILES_EMULATED)
#define TILES
#include "tensor/dtype.h"

#include <string.h>

struct tile_row {
    float sums[16];
};
struct tile {
    union {
        struct tile_row rows[16];
        bf16 halves[16][32];
    };
};
/* Tiles are registers: each thread has its own. */
static _Thread_local struct tile emulated_tiles[8];

static inline void tiles_open(void) { memset(emulated_tiles, 0, sizeof emulated_tiles); }
static inline void tiles_close(void) { memset(emulated_tiles, 0xFF, sizeof emulated_tiles); }

static inline void tile_load(int t, const void *from, size_t stride)
{
    for (size_t i = 0; i < 16; i++)
        memcpy(&emulated_tiles[t].rows[i], (const char *)from + i * stride, 64);
}

static inline void tile_store(int t, void *to, size_t stride)
{
    for (size_t i = 0; i < 16; i++) memcpy((char *)to + i * stride, &emulated_tiles[t].rows[i], 64);
}

/* Most of the time of tests that run it.  Its indices are below constants, for any data. */
__attribute__((no_sanitize("address", "undefined"))) static inline void tile_dot(int sum, int a,
                                                                                 int b)
{
    float low[16][16], high[16][16];
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 16; j++) {
            low[k][j] = bf16_to_f32(emulated_tiles[b].halves[k][2 * j]);
            high[k][j] = bf16_to_f32(emulated_tiles[b].halves[k][2 * j + 1]);
        }
    for (int i = 0; i < 16; i++) {
        struct tile_row row = emulated_tiles[sum].rows[i];
        for (int k = 0; k < 16; k++) {
            const bf16 *left = &emulated_tiles[a].halves[i][2 * k];
            float x = bf16_to_f32(left[0]), y = bf16_to_f32(left[1]);
            for (int j = 0; j < 16; j++) row.sums[j] += x * low[k][j] + y * high[k][j];
        }
        emulated_tiles[sum].rows[i] = row;
    }
}

#define TILE_ZERO(t)                 memset(&emulated_tiles[t], 0, sizeof emulated_tiles[t])
#define TILE_LOAD(t, from, stride)   tile_load(t, from, stride)
#define TILE_STREAM(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(t, to, stride)    tile_store(t, to, stride)
#define TILE_DOT(sum, a, b)          tile_dot(sum, a, b)

#else
static inline void tiles_open(void) {}
static inline void tiles_close(void) {}
#endif

#if defined(TILES)
/* Loads a tile whose rows are contiguous; via_l1: keeps it in L1. */
#define TILE_LOAD_VIA(t, at, via_l1)                                                               \
    do {                                                                                           \
        if (via_l1)                                                                                \
            TILE_LOAD(t, at, 64);                                                                  \
        else                                                                                       \
            TILE_STREAM(t, at, 64);                                                                \
    } while (0)

/* Stores tiles 0 to 3 as the quarters of a 32 x 32 micro-tile. */
#define TILES_STORE(sums)                                                                          \
    do {                                                                                           \
        TILE_STORE(0, sums, 128);                                                                  \
        TILE_STORE(1, (sums) + 16, 128);                                                           \
        TILE_STORE(2, (sums) + 512, 128);                                                          \
        TILE_STORE(3, (sums) + 528, 128);                                                          \
    } while (0)
#endif
