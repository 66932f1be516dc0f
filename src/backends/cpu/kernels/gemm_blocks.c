/* gemm_blocks.c (cpu) -- operands are packed into panels, then threads share out blocks of C.
 *
 * Whole panels of rows that lie as pairs want them are read in place.  Operands are packed in
 * slices of at most SLICE_BYTES, so that working memory is bounded.  Within a block, K is cut so
 * that a panel of B stays in the first level of the cache while the block's panels of A pass by
 * from the second; sums wait in a buffer of the thread meanwhile.
 *
 * Share of the bf16 register peak in `llamero bench` on Zen 5, two threads, the shapes of a 124.7M
 * Llama: forward 80-87 %, gradient of the input 79-86 %, of the weights 70-74 %. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm_engine.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#if !defined(TILES)
#include <omp.h>

enum {
    SLICE_BYTES = 32 << 20,
    NEAR_BYTES = 24 << 10, /* of a panel that is multiplied at once */
    DEEP = 1024, /* steps of K at a time: a slice of panels this deep is several blocks wide */
    GROUP = 4,   /* panels that are packed together */
    SIDE = 8,    /* slices are a multiple of so many panels, if they can */
    FEED = 24,   /* steps of a panel, at most, as products cut K */
};

/* One product under way. */
struct work {
    const struct product_shape *s;
    const struct way *way;
    enum panel_kind kind;
    struct lines a, b;
    const void *d;
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
            vector_load(w->d, at, w->s->out, columns, out);
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
    for (size_t b = 0; b < columns; b += w->b_panels) {
        size_t b_count = least(w->b_panels, columns - b);
        pack(w, &w->b, true, b, b_count, w->right);
        for (size_t a = 0; a < rows; a += w->a_panels) {
            size_t a_count = least(w->a_panels, rows - a);
            if (b == 0 || w->a_panels < rows) pack(w, &w->a, false, a, a_count, w->left);
            multiply_slices(w, a * PANEL, b * PANEL, a_count, b_count);
        }
    }
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

size_t KERNEL(gemm_depth)(const struct product_shape *s)
{
    (void)s;
    return DEEP;
}

/* Panels of a slice of each operand; what they and the threads' sums take. */
static size_t slices(struct work *w, const struct product_shape *s, size_t deepest, int num_threads)
{
    w->kind = KERNEL(panel_kind)();
    size_t panel = deepest * panel_step_bytes(w->kind);
    w->a_panels = slice_panels(panels_of((size_t)s->M), panel);
    w->b_panels = slice_panels(panels_of((size_t)s->N), panel);
    return (w->a_panels + w->b_panels) * panel +
           (size_t)num_threads * WAY_BLOCK * SUMS * sizeof *w->sums;
}

size_t KERNEL(gemm_bytes)(const struct product_shape *s, size_t deepest, int num_threads)
{
    struct work w;
    return slices(&w, s, deepest, num_threads);
}

void KERNEL(gemm_multiply)(const struct gemm_part *p, void *memory)
{
    struct work w = {.s = p->s, .way = p->way, .a = p->a, .b = p->b, .d = p->d, .c = p->c};
    w.num_threads = p->num_threads, w.steps = panels_of(p->a.K);
    slices(&w, p->s, p->deepest, p->num_threads);
    w.panel_bytes = w.steps * panel_step_bytes(w.kind);
    w.left = memory, w.right = w.left + w.a_panels * w.panel_bytes;
    w.sums = (float *)(void *)(w.right + w.b_panels * w.panel_bytes);
    cut_blocks(&w, panels_of((size_t)p->s->M), panels_of((size_t)p->s->N));
#pragma omp parallel num_threads(w.num_threads)
    run(&w);
}

double KERNEL(feed)(const void *panels, size_t bytes, long rounds)
{
    enum panel_kind kind = KERNEL(panel_kind)();
    size_t pair = 2 * panel_step_bytes(kind), steps = bytes / pair < FEED ? bytes / pair : FEED;
    BUG_IF(!steps);
    size_t pairs = bytes / (steps * pair);
    float sums[PANEL * PANEL] __attribute__((aligned(64)));
    for (long r = 0; r < rounds; r++)
        for (size_t i = 0; i < pairs; i++) {
            const char *left = (const char *)panels + i * steps * pair;
            KERNEL(panel_multiply)
            (kind, steps, panel_packed(kind, left), left + steps * pair / 2, sums, false);
        }
    return 2.0 * PANEL * PANEL * PANEL * (double)(steps * pairs) * (double)rounds;
}
#endif
