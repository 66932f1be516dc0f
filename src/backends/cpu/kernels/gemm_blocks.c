/* gemm_blocks.c (cpu) -- the GEMM loops for f32, and for bf16 without AMX: packs both operands,
 * then threads take MC x NC blocks of C.
 *
 * Full row panels of a K-major A are read in place, f32 ones if B has few columns.  Operands are
 * packed in slices of at most SLICE_BYTES, which bounds the scratch memory.  Within a block, K is
 * split into KC so that a micro-panel of B stays in L1 while the block's panels of A stream from
 * L2; accumulators of the block are spilled to a buffer of the thread in between.
 *
 * 70-87 % of the bf16 register peak on Zen 5 (docs/cpu-kernels.md). */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm_slice.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#include <omp.h>

enum {
    SLICE_BYTES = 32 << 20,
    L1_BYTES = 24 << 10,     /* of a micro-panel per KC */
    L2_BYTES_F32 = 48 << 10, /* the f32 micro-kernel splits KC further for L1 */
    MAX_SLICE_STEPS =
        1024, /* per K slice: panels this deep still leave slices several blocks wide */
    MIN_SLICE_STEPS = 64,
    PACK_GROUP = 4,          /* panels packed by one thread at a time */
    SLICE_MULTIPLE = 8,      /* slices are a multiple of this many panels if possible */
    BENCH_STEPS = 24,        /* of a panel, at most, like KC */
    NT_BYTES = 8 << 20,      /* an f32 C above this size bypasses the caches */
    PACK_NT_BYTES = 4 << 20, /* and so do packed f32 panels */
    IN_PLACE_COLUMNS = 256,  /* of B, at most, for an f32 A that is read in place */
};

/* One K slice of a GEMM. */
struct blocked_gemm {
    const struct gemm_shape *s;
    const struct gemm_blocking *blocking;
    enum panel_kind kind;
    struct operand a, b;
    const void *d;
    void *c;
    bool stream_f32;    /* NT stores of an f32 C */
    bool stream_panels; /* and of packed panels */
    int num_threads;
    size_t steps, panel_bytes; /* of a full panel */
    size_t a_panels, b_panels; /* in a packed slice */
    size_t mc, nc;             /* panels of a block */
    char *left, *right;        /* packed slices */
    float *acc;                /* of each thread, GEMM_MAX_BLOCK micro-tiles */
};

/* A small f32 C, such as one of Muon, is read again soon. */
static bool streams_f32(const struct gemm_shape *s, const void *c)
{
    size_t bytes = (size_t)s->M * (size_t)s->N * sizeof(float);
    return s->out == F32 && !s->accumulate && bytes > NT_BYTES && s->N % PANEL == 0 &&
           vector_is_aligned(c);
}

/* One row of an aligned micro-tile. */
static void store_row_f32(const struct blocked_gemm *g, const float *from, size_t at,
                          size_t columns)
{
    const float *d = g->s->accumulate ? (const float *)g->d + at : NULL;
    float *c = (float *)g->c + at;
    if (columns < PANEL) {
        for (size_t j = 0; j < columns; j++) c[j] = d ? d[j] + from[j] : from[j];
    } else if (g->stream_f32) {
        for (size_t j = 0; j < PANEL; j += 64 / sizeof *c) vector_stream_line(c + j, from + j);
    } else {
        for (size_t j = 0; j < PANEL; j += LANES) {
            vector sum = vector_loadu(from + j);
            vector_storeu(c + j, d ? vector_loadu(d + j) + sum : sum);
        }
    }
}

/* Stores one micro-tile to C. */
static void store_tile(const struct blocked_gemm *g, const float *acc, size_t row, size_t column)
{
    size_t N = (size_t)g->s->N, rows = size_min(PANEL, (size_t)g->s->M - row);
    size_t columns = size_min(PANEL, N - column);
    if (g->s->out == F32 && !g->s->scaled) {
        for (size_t i = 0; i < rows; i++)
            store_row_f32(g, acc + i * PANEL, (row + i) * N + column, columns);
        return;
    }
    bool nt_store = vector_is_aligned((bf16 *)g->c + row * N + column) && N % PANEL == 0 &&
                    g->s->out == BF16 && !g->s->accumulate;
    for (size_t i = 0; i < rows; i++) {
        const float *from = acc + i * PANEL;
        float out[PANEL], scaled[PANEL];
        size_t at = (row + i) * N + column;
        if (g->s->scaled) {
            for (size_t j = 0; j < PANEL; j++) scaled[j] = g->s->scale * from[j];
            from = scaled;
        }
        if (nt_store) {
            vector_stream_bf16((bf16 *)g->c + at, from);
            continue;
        }
        if (g->s->accumulate) {
            vector_load(g->d, at, g->s->out, columns, out);
            for (size_t j = 0; j < columns; j++) out[j] += from[j];
            from = out;
        }
        vector_store(g->c, at, g->s->out, columns, from);
    }
}

/* Prefetches the rows of D and of an f32 C that store_tile will access. */
static void prefetch_tile(const struct blocked_gemm *g, size_t row, size_t column)
{
    size_t N = (size_t)g->s->N, rows = size_min(PANEL, (size_t)g->s->M - row);
    if (g->s->out != F32 || g->stream_f32) return;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < PANEL; j += 64 / sizeof(float)) {
            size_t at = (row + i) * N + column + j;
            __builtin_prefetch((const float *)g->c + at, 1);
            if (g->s->accumulate && g->d != g->c) __builtin_prefetch((const float *)g->d + at, 0);
        }
}

/* Whether a row panel of A needs no packing.  With many columns of B, packing an f32 panel pays. */
static bool reads_in_place(const struct blocked_gemm *g, size_t panel)
{
    if (g->a.mn_major || (panel + 1) * PANEL > g->a.mn_count) return false;
    if (g->kind == PANEL_BF16) return g->a.K % PANEL == 0;
    return g->a.dtype == F32 && g->b.mn_count <= IN_PLACE_COLUMNS;
}

/* Panel i of a slice that starts at panel `first`, from k-step `step` on. */
static struct left_panel left_panel_at(const struct blocked_gemm *g, size_t first, size_t i,
                                       size_t step)
{
    struct left_panel p = left_panel_packed(g->kind, g->left + i * g->panel_bytes);
    if (reads_in_place(g, first + i)) {
        size_t element = dtype_bytes(g->a.dtype), row = g->a.stride * element;
        p.at = (const char *)g->a.x + (first + i) * PANEL * row;
        p.row = row, p.half = 16 * row, p.step = PANEL * element;
    }
    p.at = (const char *)p.at + step * p.step;
    return p;
}

struct gemm_block {
    size_t a, a_end, b, b_end;      /* panels within the slices */
    size_t first_row, first_column; /* of the slices, in C */
    float *acc;                     /* of this thread */
};

/* Multiplies the block over k-steps [step, end); stores it to C after the last. */
static void multiply_k_block(const struct blocked_gemm *g, const struct gemm_block *block,
                             size_t step, size_t end)
{
    const size_t step_bytes = panel_step_bytes(g->kind), first_panel = block->first_row / PANEL;
    const size_t bytes = (end - step) * step_bytes, part = bytes / (block->a_end - block->a);
    const size_t M = (size_t)g->s->M, N = (size_t)g->s->N;
    bool full_k = step == 0 && end == g->steps; /* nothing to spill: one micro-tile stays in L1 */
    for (size_t j = block->b; j < block->b_end; j++)
        for (size_t i = block->a; i < block->a_end; i++) {
            size_t spilled = full_k ? 0 : (j - block->b) * g->mc + i - block->a;
            float *acc = block->acc + spilled * MICRO_TILE;
            const char *right = g->right + j * g->panel_bytes + step * step_bytes;
            const char *next_right = right + g->panel_bytes;
            struct left_panel left = left_panel_at(g, first_panel, i, step);
            left.rows = size_min(PANEL, M - block->first_row - i * PANEL);
            left.columns = size_min(PANEL, N - block->first_column - j * PANEL);
            left.depth = g->a.K - step * PANEL;
            if (j > block->b) /* the panels of A are in L2 */
                left.next = next_right + (i - block->a) * part, left.next_bytes = part;
            else if (!reads_in_place(g, first_panel + i))
                left.next =
                    i + 1 < block->a_end ? (const char *)left.at + g->panel_bytes : next_right,
                left.next_bytes = bytes;
            if (end == g->steps)
                prefetch_tile(g, block->first_row + i * PANEL, block->first_column + j * PANEL);
            KERNEL(panel_multiply)(g->kind, end - step, left, right, acc, step > 0);
            if (end == g->steps)
                store_tile(g, acc, block->first_row + i * PANEL, block->first_column + j * PANEL);
        }
}

static void multiply_blocks(const struct blocked_gemm *g, size_t first_row, size_t first_column,
                            size_t a_count, size_t b_count)
{
    size_t block_rows = (a_count + g->mc - 1) / g->mc;
    size_t count = block_rows * ((b_count + g->nc - 1) / g->nc);
    size_t panel = g->kind == PANEL_F32 ? L2_BYTES_F32 : L1_BYTES;
    size_t steps = panel / 2 * (size_t)g->blocking->kc_halves / panel_step_bytes(g->kind);
    size_t k_blocks = (g->steps + steps - 1) / steps;
#pragma omp for schedule(dynamic)
    for (size_t n = 0; n < count; n++) {
        size_t a = n % block_rows * g->mc, b = n / block_rows * g->nc;
        size_t thread = (size_t)omp_get_thread_num();
        struct gemm_block block = {.a = a,
                                   .a_end = size_min(a + g->mc, a_count),
                                   .b = b,
                                   .b_end = size_min(b + g->nc, b_count),
                                   .first_row = first_row,
                                   .first_column = first_column,
                                   .acc = g->acc + thread * GEMM_MAX_BLOCK * MICRO_TILE};
        for (size_t p = 0; p < k_blocks; p++)
            multiply_k_block(g, &block, g->steps * p / k_blocks, g->steps * (p + 1) / k_blocks);
        vector_stream_fence();
    }
}

/* Packs `count` panels of B (right) or of A, from panel `first` on.  If there are few groups,
 * threads share each along K. */
static void pack_panels(const struct blocked_gemm *g, bool right, size_t first, size_t count)
{
    const struct operand *o = right ? &g->b : &g->a;
    char *to = right ? g->right : g->left;
    struct panel_format format = {.kind = g->kind,
                                  .right = right,
                                  .stream = g->stream_panels,
                                  .prefetch = true,
                                  .steps = g->steps};
    size_t groups = (count + PACK_GROUP - 1) / PACK_GROUP;
    size_t parts = (2 * (size_t)g->num_threads + groups - 1) / groups;
    if (parts > g->steps) parts = g->steps;
#pragma omp for schedule(static)
    for (size_t n = 0; n < groups * parts; n++) {
        size_t at = n / parts * PACK_GROUP, end = size_min(at + PACK_GROUP, count);
        size_t step = g->steps * (n % parts) / parts;
        size_t last = size_min(g->steps * (n % parts + 1) / parts * PANEL, o->K);
        const struct operand part = operand_k_range(*o, step * PANEL, last);
        while (!right && at < end && reads_in_place(g, first + at)) at++;
        KERNEL(panel_pack)
        (&part, format, first + at, end - at,
         to + at * g->panel_bytes + step * panel_step_bytes(g->kind));
        if (format.stream) vector_stream_fence();
    }
}

static void run_thread(const struct blocked_gemm *g)
{
    size_t rows = panel_count((size_t)g->s->M), columns = panel_count((size_t)g->s->N);
    for (size_t b = 0; b < columns; b += g->b_panels) {
        size_t b_count = size_min(g->b_panels, columns - b);
        pack_panels(g, true, b, b_count);
        for (size_t a = 0; a < rows; a += g->a_panels) {
            size_t a_count = size_min(g->a_panels, rows - a);
            if (b == 0 || g->a_panels < rows) pack_panels(g, false, a, a_count);
            multiply_blocks(g, a * PANEL, b * PANEL, a_count, b_count);
        }
    }
}

/* Halves the blocks until each thread gets several. */
static void choose_block_sizes(struct blocked_gemm *g, size_t rows, size_t columns)
{
    g->mc = (size_t)g->blocking->mc, g->nc = (size_t)g->blocking->nc;
    while (g->mc * g->nc > 1 && ((rows + g->mc - 1) / g->mc) * ((columns + g->nc - 1) / g->nc) <
                                    4 * (size_t)g->num_threads)
        if (g->mc > g->nc)
            g->mc /= 2;
        else if (g->mc < g->nc)
            g->nc /= 2;
        else
            g->mc /= 2, g->nc /= 2;
}

static size_t slice_panels(size_t panels, size_t panel_bytes)
{
    size_t fit = SLICE_BYTES / panel_bytes / SLICE_MULTIPLE * SLICE_MULTIPLE;
    return size_min(panels, fit > SLICE_MULTIPLE ? fit : SLICE_MULTIPLE);
}

/* If no operand fits into one slice, A is packed again for each slice of B; f32 panels are twice as
 * large, so their slices are shorter then. */
static size_t slice_steps(const struct gemm_shape *s)
{
    size_t panels = size_min(panel_count((size_t)s->M), panel_count((size_t)s->N));
    size_t fit = SLICE_BYTES / panel_step_bytes(PANEL_F32) / panels;
    if (s->dtype == BF16 || fit > MAX_SLICE_STEPS) return MAX_SLICE_STEPS;
    return fit > MIN_SLICE_STEPS ? fit : MIN_SLICE_STEPS;
}

/* Sets the panels per slice of each operand; returns the bytes of both and of the accumulators. */
static size_t size_slices(struct blocked_gemm *g, const struct gemm_shape *s, size_t max_steps,
                          int num_threads)
{
    g->kind = s->dtype == F32 ? PANEL_F32 : KERNEL(panel_kind)();
    size_t panel = max_steps * panel_step_bytes(g->kind);
    g->a_panels = slice_panels(panel_count((size_t)s->M), panel);
    g->b_panels = slice_panels(panel_count((size_t)s->N), panel);
    return (g->a_panels + g->b_panels) * panel +
           (size_t)num_threads * GEMM_MAX_BLOCK * MICRO_TILE * sizeof *g->acc;
}

static size_t slice_bytes(const struct gemm_shape *s, size_t max_steps, int num_threads)
{
    struct blocked_gemm g;
    return size_slices(&g, s, max_steps, num_threads);
}

static void multiply_slice(const struct gemm_slice *p, void *memory)
{
    struct blocked_gemm g = {
        .s = p->s, .blocking = p->blocking, .a = p->a, .b = p->b, .d = p->d, .c = p->c};
    g.num_threads = p->num_threads, g.steps = panel_count(p->a.K);
    g.stream_f32 = streams_f32(p->s, p->c);
    size_slices(&g, p->s, p->max_steps, p->num_threads);
    g.panel_bytes = g.steps * panel_step_bytes(g.kind);
    g.left = memory, g.right = g.left + g.a_panels * g.panel_bytes;
    g.acc = (float *)(void *)(g.right + g.b_panels * g.panel_bytes);
    size_t packed_panels = panel_count((size_t)p->s->M) + panel_count((size_t)p->s->N);
    g.stream_panels = p->s->dtype != F32 || packed_panels * g.panel_bytes > PACK_NT_BYTES;
    choose_block_sizes(&g, panel_count((size_t)p->s->M), panel_count((size_t)p->s->N));
#pragma omp parallel num_threads(g.num_threads)
    run_thread(&g);
}

const struct gemm_loops KERNEL(gemm_blocks) = {slice_steps, slice_bytes, multiply_slice};

#if !defined(TILES)
double KERNEL(microkernel_bench)(const void *panels, size_t bytes, long rounds)
{
    enum panel_kind kind = KERNEL(panel_kind)();
    size_t pair = 2 * panel_step_bytes(kind),
           steps = bytes / pair < BENCH_STEPS ? bytes / pair : BENCH_STEPS;
    BUG_IF(!steps);
    size_t pairs = bytes / (steps * pair);
    float acc[PANEL * PANEL] __attribute__((aligned(64)));
    for (long r = 0; r < rounds; r++)
        for (size_t i = 0; i < pairs; i++) {
            const char *left = (const char *)panels + i * steps * pair;
            KERNEL(panel_multiply)
            (kind, steps, left_panel_packed(kind, left), left + steps * pair / 2, acc, false);
        }
    return 2.0 * PANEL * PANEL * PANEL * (double)(steps * pairs) * (double)rounds;
}
#endif
