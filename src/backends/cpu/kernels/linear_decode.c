// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/linear_decode.h"

#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum {
    TOKENS = 4,          /* tokens and rows of weights that vectors multiply at a time: their */
    ROWS = LANES / 4,    /* sums fill one register */
    PAIR = 2 * LANES,    /* elements of a row that are loaded at a time */
    MAX_TOKENS = 8,      /* with vectors */
    TILE_MIN_TOKENS = 6, /* with AMX tiles */
    TILE_ROWS = 16,
    PACK_STEPS = 8, /* k-steps that a thread packs at a time */
    PAGE = 4096,
};

/* One call. */
struct decode_linear {
    const struct linear *l;
    const struct linear_fwd *io;
    float scale;
    const float *x; /* [N][x_stride], the order of elements that vector_get_two loads */
    size_t x_stride;
    char *panels; /* x as column panels, for the tiles */
};

/* y = scale * sums (+ add) of `count` features of a token, at most LANES. */
static inline void store_sums(const struct decode_linear *d, size_t token, size_t feature,
                              size_t count, vector sums)
{
    const struct linear *l = d->l;
    size_t at = token * (size_t)l->F + feature;
    vector out = d->scale * sums;
    if (l->accumulate) out += vector_get(linear_added(d->io), at, l->dtype, count);
    vector_set(d->io->y_NF, at, l->dtype, count, out);
}

/* --- vectors --- */

/* Adds the products of ROWS rows of weights and `tokens` rows of x.  Meanwhile prefetches the rows
 * that follow, as the hardware prefetcher starts again in each of them. */
static inline __attribute__((always_inline)) void
multiply_rows(const struct decode_linear *d, enum dtype dtype, const size_t row_at[ROWS],
              const float *x, size_t tokens, vector sums[ROWS][TOKENS])
{
    const void *w = d->io->w_FD;
    size_t D = (size_t)d->l->D, ahead = ROWS * D, k = 0;
    for (; k + PAIR <= D; k += PAIR)
        for (size_t i = 0; i < ROWS; i++) {
            struct vectors row = vector_get_two(w, row_at[i] + k, dtype);
            vector_prefetch(w, row_at[i] + k + ahead, dtype);
            if (dtype == F32) vector_prefetch(w, row_at[i] + k + LANES + ahead, dtype);
            for (size_t n = 0; n < tokens; n++) {
                const float *with = x + n * d->x_stride + k;
                sums[i][n] += row.a * vector_loadu(with);
                sums[i][n] += row.b * vector_loadu(with + LANES);
            }
        }
    for (; k < D; k += LANES)
        for (size_t i = 0; i < ROWS; i++) {
            vector row = vector_get(w, row_at[i] + k, dtype, size_min(LANES, D - k));
            for (size_t n = 0; n < tokens; n++)
                sums[i][n] += row * vector_loadu(x + n * d->x_stride + k);
        }
}

/* Features [feature, feature + ROWS) of up to TOKENS tokens. */
static inline __attribute__((always_inline)) void
multiply_tokens(const struct decode_linear *d, size_t feature, size_t token, size_t tokens)
{
    size_t row_at[ROWS], F = (size_t)d->l->F, rows = size_min(ROWS, F - feature);
    vector sums[ROWS][TOKENS] = {0}, lanes[LANES];
    float out[TOKENS * ROWS + LANES] = {0};
    const float *x = d->x + token * d->x_stride;
    for (size_t i = 0; i < ROWS; i++) row_at[i] = size_min(feature + i, F - 1) * (size_t)d->l->D;
    if (linear_operand(d->l) == F32)
        multiply_rows(d, F32, row_at, x, tokens, sums);
    else
        multiply_rows(d, BF16, row_at, x, tokens, sums);
    for (size_t n = 0; n < TOKENS; n++)
        for (size_t i = 0; i < ROWS; i++) lanes[n * ROWS + i] = sums[i][n];
    vector_storeu(out, vector_reduce_sums(lanes));
    for (size_t n = 0; n < tokens; n++)
        store_sums(d, token + n, feature, rows, vector_loadu(out + n * ROWS));
}

/* Features [feature, feature + ROWS) of all tokens. */
static void multiply_features(const struct decode_linear *d, size_t feature)
{
    size_t N = (size_t)d->l->N, n = 0;
    for (; n + TOKENS <= N; n += TOKENS) multiply_tokens(d, feature, n, TOKENS);
    switch (N - n) {
    case 1: multiply_tokens(d, feature, n, 1); break;
    case 2: multiply_tokens(d, feature, n, 2); break;
    case 3: multiply_tokens(d, feature, n, 3); break;
    default: break;
    }
}

static void run_vectors(const struct decode_linear *d, size_t first, int num_threads)
{
    size_t F = (size_t)d->l->F;
#pragma omp parallel for schedule(static) num_threads(num_threads)
    for (size_t f = first; f < F; f += ROWS) multiply_features(d, f);
}

/* --- tiles --- */

#if defined(TILES)
static bool uses_tiles(const struct linear *l)
{
    return linear_operand(l) == BF16 && l->D % PANEL == 0 && l->N >= TILE_MIN_TOKENS &&
           l->N <= DECODE_MAX_ROWS;
}

/* TILE_ROWS rows of weights times up to 16 tokens for each of `tiles`; the left operand is read in
 * place.  The hardware prefetcher follows one stream per page of memory.  Rows shorter than a page
 * share one; with more than 16 tokens these are prefetched, in the order of addresses. */
static inline __attribute__((always_inline)) void multiply_tiles(const struct decode_linear *d,
                                                                 size_t feature, size_t tiles,
                                                                 float sums[4][TILE_ROWS][16])
{
    size_t row = (size_t)d->l->D * sizeof(bf16), steps = (size_t)d->l->D / PANEL;
    const char *w = (const char *)d->io->w_FD + feature * row, *x = d->panels;
    const char *second = x + steps * KSTEP_BYTES, *next = w + (TILE_ROWS * row - 1024);
    bool prefetches = tiles > 1 && row < PAGE;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (size_t step = 0; step < steps; step++, w += 64, x += KSTEP_BYTES, second += KSTEP_BYTES) {
        TILE_STREAM(4, w, row);
        TILE_LOAD(5, x, 64);
        TILE_DOT(0, 4, 5);
        if (tiles > 1) {
            TILE_LOAD(6, x + 1024, 64);
            TILE_DOT(1, 4, 6);
        }
        if (tiles > 2) {
            TILE_LOAD(7, second, 64);
            TILE_DOT(2, 4, 7);
            TILE_LOAD(5, second + 1024, 64);
            TILE_DOT(3, 4, 5);
        }
        next += 1024;
#pragma GCC unroll 1
        for (int i = 0; i < TILE_ROWS && prefetches; i++) __builtin_prefetch(next + 64 * i, 0, 2);
    }
    TILE_STORE(0, sums[0], 64);
    if (tiles > 1) TILE_STORE(1, sums[1], 64);
    if (tiles > 2) TILE_STORE(2, sums[2], 64);
    if (tiles > 2) TILE_STORE(3, sums[3], 64);
}

static void multiply_tile_rows(const struct decode_linear *d, size_t feature)
{
    float sums[4][TILE_ROWS][16] __attribute__((aligned(64)));
    size_t N = (size_t)d->l->N;
    if (N <= 16)
        multiply_tiles(d, feature, 1, sums);
    else if (N <= PANEL)
        multiply_tiles(d, feature, 2, sums);
    else
        multiply_tiles(d, feature, 4, sums);
    for (size_t n = 0; n < N; n += 16) KERNEL(tile_transpose)(sums[n / 16][0]);
    for (size_t n = 0; n < N; n++)
        for (size_t i = 0; i < TILE_ROWS; i += LANES)
            store_sums(d, n, feature + i, LANES, vector_loadu(sums[n / 16][n % 16] + i));
}

static size_t panels_bytes(const struct linear *l)
{
    return panel_count((size_t)l->N) * panel_count((size_t)l->D) * KSTEP_BYTES;
}

/* Packs k-steps [begin, end) of all tokens. */
static void pack_tokens(const struct decode_linear *d, size_t begin, size_t end)
{
    size_t N = (size_t)d->l->N, D = (size_t)d->l->D;
    const struct operand o = {d->io->x_ND, BF16, N, D, D, false, false};
    const struct operand part = operand_k_range(o, begin * PANEL, end * PANEL);
    const struct panel_format format = {.kind = PANEL_BF16, .right = true, .steps = D / PANEL};
    KERNEL(panel_pack)(&part, format, 0, panel_count(N), d->panels + begin * KSTEP_BYTES);
}

/* Packs the tokens, then multiplies features [0, end). */
static void run_tiles(const struct decode_linear *d, size_t end, int num_threads)
{
    size_t steps = (size_t)d->l->D / PANEL;
#pragma omp parallel num_threads(num_threads)
    {
        tiles_open();
#pragma omp for schedule(static)
        for (size_t step = 0; step < steps; step += PACK_STEPS)
            pack_tokens(d, step, size_min(step + PACK_STEPS, steps));
#pragma omp for schedule(static)
        for (size_t f = 0; f < end; f += TILE_ROWS) multiply_tile_rows(d, f);
        tiles_close();
    }
}
#else
static bool uses_tiles(const struct linear *l)
{
    (void)l;
    return false;
}
static void run_tiles(const struct decode_linear *d, size_t end, int num_threads)
{
    (void)d, (void)end, (void)num_threads;
}
static size_t panels_bytes(const struct linear *l)
{
    (void)l;
    return 0;
}
#endif

bool KERNEL(linear_decode_used)(const struct linear *l)
{
    return l->N <= MAX_TOKENS || uses_tiles(l);
}

/* Tiles multiply whole groups of rows, vectors the rest. */
enum status KERNEL(linear_decode)(const struct linear *l, const struct linear_fwd *io, float scale,
                                  struct queue *queue)
{
    size_t N = (size_t)l->N, D = (size_t)l->D, mark = arena_mark(&queue->scratch);
    size_t by_tiles = uses_tiles(l) ? (size_t)l->F / TILE_ROWS * TILE_ROWS : 0;
    bool any_vectors = by_tiles < (size_t)l->F;
    struct decode_linear d = {
        .l = l, .io = io, .scale = scale, .x_stride = (D + PAIR - 1) / PAIR * PAIR};
    float *x = any_vectors ? arena_alloc(&queue->scratch, N * d.x_stride, sizeof *x) : NULL;
    char *panels = by_tiles ? arena_alloc(&queue->scratch, panels_bytes(l), 1) : NULL;
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    d.x = x, d.panels = panels;
    if (by_tiles) run_tiles(&d, by_tiles, queue->num_threads);
    for (size_t n = 0; n < N && any_vectors; n++)
        vector_load_row(io->x_ND, n * D, linear_operand(l), D, x + n * d.x_stride);
    if (any_vectors) run_vectors(&d, by_tiles, queue->num_threads);
    return STATUS_OK;
}
