/* gemm.c (cpu) -- operands are packed into panels, then threads share out blocks of C.
 *
 * Whole panels of rows that lie as pairs want them are read in place.  Operands are packed in
 * slices of at most SLICE_BYTES, so that working memory is bounded; sums over more than DEEP steps
 * are made piece by piece, and wait in f32 for the next piece where C is bf16.  Within a block, K
 * is cut so that a panel of B stays in the first level of the cache while the block's panels of A
 * pass by from the second; sums wait in a buffer of the thread meanwhile.
 *
 * Share of the bf16 register peak in `llamero bench` on Zen 5, two threads, the shapes of a 124.7M
 * Llama: forward 80-87 %, gradient of the input 79-86 %, of the weights 70-74 %.  On AMX it has not
 * been measured. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm.h"

#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#include <omp.h>

enum {
    SLICE_BYTES = 32 << 20,
#if defined(TILES)
    NEAR_BYTES = 48 << 10, /* of a panel that is multiplied at once */
#else
    NEAR_BYTES = 24 << 10,
#endif
    DEEP = 1024, /* steps of K at a time: a slice of panels this deep is several blocks wide */
    GROUP = 4,   /* panels that are packed together */
    SIDE = 8,    /* slices are a multiple of so many panels, if they can */
    SUMS = PANEL * PANEL,
};

/* One product under way. */
struct work {
    const struct product_shape *s;
    const struct way *way;
    enum panel_kind kind;
    struct lines a, b;
    void *c;
    int num_threads;
    size_t steps, panel_bytes; /* of a whole panel */
    size_t a_panels, b_panels; /* in a slice */
    size_t rows, columns;      /* panels of a block */
    char *left, *right;        /* packed slices */
    float *sums;               /* of each thread, WAY_BLOCK panels */
};

/* The sums of one pair of panels to their place in C. */
static void put(const struct work *w, const float *sums, size_t row, size_t column)
{
    size_t N = (size_t)w->s->N, rows = least(PANEL, (size_t)w->s->M - row);
    size_t columns = least(PANEL, N - column);
    bool lines = vector_is_line((bf16 *)w->c + row * N + column) && N % PANEL == 0 &&
                 w->s->out == BF16 && !w->s->accumulate;
    for (size_t i = 0; i < rows; i++) {
        const float *from = sums + i * PANEL;
        float out[PANEL], scaled[PANEL];
        size_t at = (row + i) * N + column;
        if (w->s->scaled) {
            for (size_t j = 0; j < PANEL; j++) scaled[j] = w->s->scale * from[j];
            from = scaled;
        }
        if (lines) {
            vector_stream((bf16 *)w->c + at, from);
            continue;
        }
        if (w->s->accumulate) {
            vector_load(w->c, at, w->s->out, columns, out);
            for (size_t j = 0; j < columns; j++) out[j] += from[j];
            from = out;
        }
        vector_store(w->c, at, w->s->out, columns, from);
    }
}

/* Rows of A whose panel needs no packing. */
static bool in_place(const struct work *w, size_t panel)
{
    return w->kind == PAIRS && !w->a.across && w->a.K % PANEL == 0 &&
           (panel + 1) * PANEL <= w->a.size;
}

/* Panel i of a slice that begins with panel `first`, from `step` on. */
static struct left_panel left_panel(const struct work *w, size_t first, size_t i, size_t step)
{
    struct left_panel p = panel_packed(w->kind, w->left + i * w->panel_bytes);
    if (in_place(w, first + i)) {
        size_t row = w->a.stride * sizeof(bf16);
        p = (struct left_panel){(const char *)w->a.x + (first + i) * PANEL * row, row, 16 * row,
                                PANEL * sizeof(bf16)};
    }
    p.at = (const char *)p.at + step * p.step;
    return p;
}

struct block {
    size_t a, a_end, b, b_end; /* panels of the slices */
};

/* The block's sums over steps [step, end); the last time they are put in place. */
static void multiply_steps(const struct work *w, const struct block *k, size_t step, size_t end,
                           size_t first_row, size_t first_column, float *sums)
{
    size_t skip = step * panel_step_bytes(w->kind);
    for (size_t j = k->b; j < k->b_end; j++)
        for (size_t i = k->a; i < k->a_end; i++) {
            bool whole = step == 0 && end == w->steps; /* nothing waits: one buffer stays near */
            float *here = whole ? sums : sums + ((j - k->b) * w->rows + i - k->a) * SUMS;
            KERNEL(panel_multiply)
            (w->kind, end - step, left_panel(w, first_row / PANEL, i, step),
             w->right + j * w->panel_bytes + skip, here, step > 0);
            if (end == w->steps) put(w, here, first_row + i * PANEL, first_column + j * PANEL);
        }
}

static void multiply_slices(const struct work *w, size_t first_row, size_t first_column,
                            size_t a_count, size_t b_count)
{
    size_t across = (a_count + w->rows - 1) / w->rows;
    size_t count = across * ((b_count + w->columns - 1) / w->columns);
    size_t steps = NEAR_BYTES / 2 * (size_t)w->way->near_halves / panel_step_bytes(w->kind);
    size_t pieces = (w->steps + steps - 1) / steps;
#pragma omp for schedule(dynamic)
    for (size_t n = 0; n < count; n++) {
        struct block k = {.a = n % across * w->rows, .b = n / across * w->columns};
        k.a_end = least(k.a + w->rows, a_count), k.b_end = least(k.b + w->columns, b_count);
        float *sums = w->sums + (size_t)omp_get_thread_num() * WAY_BLOCK * SUMS;
        for (size_t p = 0; p < pieces; p++)
            multiply_steps(w, &k, w->steps * p / pieces, w->steps * (p + 1) / pieces, first_row,
                           first_column, sums);
        vector_stream_end();
    }
}

static void pack(const struct work *w, const struct lines *l, bool right, size_t first,
                 size_t count, char *to)
{
    struct panel_form form = {.kind = w->kind, .right = right, .stream = true};
#pragma omp for schedule(static)
    for (size_t i = 0; i < count; i += GROUP) {
        size_t end = least(i + GROUP, count), at = i;
        while (!right && at < end && in_place(w, first + at)) at++;
        KERNEL(panel_pack)(l, form, first + at, end - at, to + at * w->panel_bytes);
        vector_stream_end();
    }
}

static void run(const struct work *w)
{
    size_t rows = panels_of((size_t)w->s->M), columns = panels_of((size_t)w->s->N);
    tiles_open();
    for (size_t b = 0; b < columns; b += w->b_panels) {
        size_t b_count = least(w->b_panels, columns - b);
        pack(w, &w->b, true, b, b_count, w->right);
        for (size_t a = 0; a < rows; a += w->a_panels) {
            size_t a_count = least(w->a_panels, rows - a);
            if (b == 0 || w->a_panels < rows) pack(w, &w->a, false, a, a_count, w->left);
            multiply_slices(w, a * PANEL, b * PANEL, a_count, b_count);
        }
    }
    tiles_close();
}

/* Blocks small enough that each thread gets several. */
static void cut_blocks(struct work *w, size_t rows, size_t columns)
{
    w->rows = (size_t)w->way->rows, w->columns = (size_t)w->way->columns;
    while (w->rows * w->columns > 1 &&
           ((rows + w->rows - 1) / w->rows) * ((columns + w->columns - 1) / w->columns) <
               4 * (size_t)w->num_threads)
        if (w->rows > w->columns)
            w->rows /= 2;
        else if (w->rows < w->columns)
            w->columns /= 2;
        else
            w->rows /= 2, w->columns /= 2;
}

static size_t slice_panels(size_t panels, size_t panel_bytes)
{
    size_t fit = SLICE_BYTES / panel_bytes / SIDE * SIDE;
    return least(panels, fit > SIDE ? fit : SIDE);
}

/* C, or where its sums wait, (+)= the product of k elements of each line from `begin` on. */
static void multiply_lines(struct work w, size_t begin, size_t end, bool accumulate, void *c,
                           enum dtype out)
{
    struct product_shape s = *w.s;
    s.K = (int)(end - begin), s.accumulate = accumulate, s.out = out;
    w.s = &s, w.c = c;
    w.a.x = (const bf16 *)w.a.x + begin * (w.a.across ? w.a.stride : 1), w.a.K = end - begin;
    w.b.x = (const bf16 *)w.b.x + begin * (w.b.across ? w.b.stride : 1), w.b.K = end - begin;
    w.steps = panels_of(end - begin), w.panel_bytes = w.steps * panel_step_bytes(w.kind);
#pragma omp parallel num_threads(w.num_threads)
    run(&w);
}

/* C (+)= the sums that waited. */
static void finish(const struct product_shape *s, const float *sums, bf16 *c, int num_threads)
{
    size_t N = (size_t)s->N;
#pragma omp parallel for schedule(static) num_threads(num_threads)
    for (size_t row = 0; row < (size_t)s->M; row++)
        for (size_t at = row * N; at < row * N + N; at++) {
            float sum = s->scaled ? s->scale * sums[at] : sums[at];
            c[at] = bf16_from_f32(s->accumulate ? bf16_to_f32(c[at]) + sum : sum);
        }
}

enum status KERNEL(gemm)(const struct product_shape *s, const struct way *way, const bf16 *a,
                         const bf16 *b, void *c, struct queue *on)
{
    size_t M = (size_t)s->M, N = (size_t)s->N, K = (size_t)s->K, mark = arena_mark(&on->scratch);
    size_t steps = panels_of(K), pieces = (steps + DEEP - 1) / DEEP;
    size_t deepest = (steps + pieces - 1) / pieces;
    struct work w = {
        .s = s, .way = way, .kind = KERNEL(panel_kind)(), .num_threads = on->num_threads};
    w.a = (struct lines){a, BF16, M, K, s->transpose_a ? M : K, s->transpose_a};
    w.b = (struct lines){b, BF16, N, K, s->transpose_b ? K : N, !s->transpose_b};
    size_t panel_bytes = deepest * panel_step_bytes(w.kind);
    w.a_panels = slice_panels(panels_of(M), panel_bytes);
    w.b_panels = slice_panels(panels_of(N), panel_bytes);
    cut_blocks(&w, panels_of(M), panels_of(N));
    w.left = arena_take(&on->scratch, w.a_panels, panel_bytes);
    w.right = arena_take(&on->scratch, w.b_panels, panel_bytes);
    w.sums = arena_take(&on->scratch, (size_t)on->num_threads, WAY_BLOCK * SUMS * sizeof *w.sums);
    bool wait = pieces > 1 && s->out == BF16; /* bf16 would round the sums of every piece */
    float *waiting = wait ? arena_take(&on->scratch, M * N, sizeof *waiting) : NULL;
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    struct product_shape piece = *s;
    piece.scaled = s->scaled && !wait; /* sums that wait are scaled at the end */
    w.s = &piece;
    for (size_t p = 0; p < pieces; p++) {
        size_t begin = steps * p / pieces * PANEL, end = least(steps * (p + 1) / pieces * PANEL, K);
        bool more = p > 0 || (s->accumulate && !wait);
        multiply_lines(w, begin, end, more, wait ? waiting : c, wait ? F32 : s->out);
    }
    if (wait) finish(s, waiting, c, on->num_threads);
    return STATUS_OK;
}
