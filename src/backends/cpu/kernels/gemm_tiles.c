/* gemm_tiles.c (cpu) -- the GEMM loops for AMX, whose tiles multiply faster than the caches and the
 * vector units can follow.
 *
 * All threads first pack the smaller operand whole; it is streamed through L1, panel by panel.  Of
 * the larger operand each thread packs a block that stays in L2 (the cached operand) and runs the
 * macro-kernel: every streamed panel times every panel of the block.  So each is packed once.  A
 * left operand in the panel layout is read in place, and the next block is prefetched meanwhile.
 * Where K is too long for L1 it is split into chunks, and accumulators are spilled to L2 as f32,
 * which loses no bits.
 *
 * While the tiles multiply one micro-tile, the vector units run the epilogue of the one before and
 * prefetch (overlap_epilogue).
 *
 * If both operands are MN-major, packing has to transpose the left one.  That is chosen to be the
 * smaller one; where it belongs on the right, C is computed transposed.
 *
 * 28-65 % of the bf16 register peak on a Xeon with AMX, limited by tile loads from L2
 * (docs/cpu-kernels.md). */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm_slice.h"
#include "backends/cpu/kernels/panel_pairs.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#if defined(TILES)
#include <omp.h>

enum {
    STREAMED_BYTES = 32 << 20, /* per K slice: bounds the scratch memory */
    MIN_SLICE_STEPS = 64,      /* k-steps of a slice */
    MAX_SLICE_STEPS = 1024,
    UNSPLIT_STEPS = 40,   /* up to this many k-steps, K is not split into chunks */
    UNSPLIT_PANELED = 30, /* the same where the cached operand is read in place */
    L2_STEPS = 384,       /* k-steps of all panels of a cached block */
    CHUNK_STEPS = 16,     /* k-steps of a chunk otherwise (KC) */
    L1_STEPS = 18,        /* of a streamed panel that are kept in L1 */
    MAX_SPILLED = 200,    /* micro-tiles with spilled accumulators */
    PACK_GROUP = 4,       /* panels, or k-steps of all panels, packed by one thread at a time */
};

static size_t div_up(size_t a, size_t b) { return (a + b - 1) / b; }

/* How accumulators become C: stored or added to D, as bf16 or f32.  STORE_ANY handles edges and
 * scales. */
enum epilogue { STORE_BF16, ADD_BF16, STORE_F32, ADD_F32, STORE_ANY };

/* One K slice of a GEMM. */
struct tiles_gemm {
    const struct gemm_shape *s;
    struct operand cached, streamed;
    size_t cached_panels, streamed_panels;
    bool left_streamed;
    bool c_transposed; /* rows of the accumulators are columns of C */
    enum epilogue epilogue;
    bool stream; /* NT stores: rows of C are whole cache lines, and are not read as D */
    const char *d;
    char *c;
    size_t steps, chunks;                  /* along K; chunks of k-steps */
    size_t blocks, groups;                 /* of cached and of streamed panels */
    size_t next;                           /* the next block and group that no thread has claimed */
    char *panels;                          /* the streamed operand, [panels][steps] */
    bool cached_paneled, streamed_paneled; /* read in place, in the panel layout */
    char *scratch; /* scratch_bytes for each thread: a block's chunk, then accumulators */
    size_t scratch_bytes;
};

/* A chunk of a block of cached panels, times a group of streamed ones. */
struct macro_task {
    size_t cached, cached_end, streamed, streamed_end; /* panel ranges: cached, streamed */
    size_t chunk, step, end;
};

/* State of one thread.  The epilogue lags one micro-tile behind the tiles. */
struct tiles_thread {
    struct tiles_gemm *g;
    char *block;          /* packed, [panels][steps of a chunk] */
    float *spill;         /* [group][block] accumulators between chunks */
    float *acc;           /* the micro-tile that the epilogue stores */
    float *acc_dest;      /* where the accumulators go that the tiles hold */
    const float *acc_row; /* the epilogue's next row */
    const char *d_row;    /* the addend of that row */
    char *c_row;          /* its destination */
    size_t rows;          /* left to store */
    size_t columns, stride;
    enum epilogue epilogue;
    /* next line to prefetch; the last three may be NULL */
    const char *streamed_prefetch, *block_prefetch, *spill_prefetch, *d_prefetch;
    size_t streamed_lines_per_step, block_lines_per_step; /* to prefetch per k-step */
};

static void store_any_row(const struct tiles_thread *t)
{
    const struct gemm_shape *s = t->g->s;
    float out[PANEL], d_row[PANEL] = {0};
    if (s->accumulate) vector_load(t->d_row, 0, s->out, t->columns, d_row);
    for (size_t j = 0; j < PANEL; j++)
        out[j] = d_row[j] + (s->scaled ? s->scale : 1) * t->acc_row[j];
    vector_store(t->c_row, 0, s->out, t->columns, out);
}

#if defined(__AVX512BF16__)
static inline __m512 load_bf16(const void *sixteen)
{
    __m256i halves = _mm256_loadu_si256(sixteen);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Stores 32 accumulators, plus the addend. stream: NT stores. */
static inline void store_row(enum epilogue epilogue, char *c_row, const float *acc_row,
                             const char *d_row, bool stream)
{
    __m512 low = _mm512_loadu_ps(acc_row), high = _mm512_loadu_ps(acc_row + 16);
    if (epilogue == ADD_BF16)
        low = _mm512_add_ps(low, load_bf16(d_row)),
        high = _mm512_add_ps(high, load_bf16(d_row + 32));
    if (epilogue == ADD_F32)
        low = _mm512_add_ps(low, _mm512_loadu_ps(d_row)),
        high = _mm512_add_ps(high, _mm512_loadu_ps(d_row + 64));
    if (epilogue == STORE_BF16 || epilogue == ADD_BF16) {
        pairs_store(c_row, (__m512i)_mm512_cvtne2ps_pbh(high, low), stream);
        return;
    }
    pairs_store(c_row, _mm512_castps_si512(low), stream);
    pairs_store(c_row + 64, _mm512_castps_si512(high), stream);
}
#else
static inline void store_row(enum epilogue epilogue, char *c_row, const float *acc_row,
                             const char *d_row, bool stream)
{
    (void)stream;
    enum dtype dtype = epilogue == STORE_F32 || epilogue == ADD_F32 ? F32 : BF16;
    float added[PANEL] = {0}, out[PANEL];
    if (epilogue == ADD_BF16 || epilogue == ADD_F32) vector_load(d_row, 0, dtype, PANEL, added);
    for (size_t j = 0; j < PANEL; j++) out[j] = added[j] + acc_row[j];
    vector_store(c_row, 0, dtype, PANEL, out);
}
#endif

static inline void store_rows(struct tiles_thread *t, size_t count)
{
    bool stream = t->g->stream;
    for (count = size_min(count, t->rows); count > 0; count--) {
        switch (t->epilogue) {
        case STORE_BF16: store_row(STORE_BF16, t->c_row, t->acc_row, t->d_row, stream); break;
        case ADD_BF16: store_row(ADD_BF16, t->c_row, t->acc_row, t->d_row, stream); break;
        case STORE_F32: store_row(STORE_F32, t->c_row, t->acc_row, t->d_row, stream); break;
        case ADD_F32: store_row(ADD_F32, t->c_row, t->acc_row, t->d_row, stream); break;
        case STORE_ANY: store_any_row(t); break;
        }
        t->rows--, t->acc_row += PANEL, t->d_row += t->stride, t->c_row += t->stride;
    }
}

/* What the vector units do while four tile products are in flight. */
static inline void overlap_epilogue(struct tiles_thread *t)
{
    store_rows(t, 2);
    for (size_t i = 0; i < t->streamed_lines_per_step; i++, t->streamed_prefetch += 64)
        __builtin_prefetch(t->streamed_prefetch, 0, 2);
    if (t->block_prefetch)
        for (size_t i = 0; i < t->block_lines_per_step; i++, t->block_prefetch += 64)
            __builtin_prefetch(t->block_prefetch, 0, 2);
    if (t->spill_prefetch)
        for (int i = 0; i < 4; i++, t->spill_prefetch += 64) __builtin_prefetch(t->spill_prefetch);
    if (t->d_prefetch)
        for (int i = 0; i < 2; i++, t->d_prefetch += t->stride) {
            __builtin_prefetch(t->d_prefetch);
            if (t->g->epilogue == ADD_F32) __builtin_prefetch(t->d_prefetch + 64);
        }
}

/* Stores the quarter at offset `at` of the finished accumulators and starts the next ones. */
#define SWAP_TILE(tile, at)                                                                        \
    do {                                                                                           \
        TILE_STORE(tile, t->acc_dest + (at), PANEL * sizeof(float));                               \
        if (begin)                                                                                 \
            TILE_LOAD(tile, begin + (at), PANEL * sizeof(float));                                  \
        else                                                                                       \
            TILE_ZERO(tile);                                                                       \
    } while (0)

/* Two panels to multiply: the next k-step of each. */
struct micro_panels {
    const char *left, *right;
};
enum l1_operand { NONE_IN_L1, LEFT_IN_L1, RIGHT_IN_L1 };

/* Loads the operand in L1 last: the other one has the longer latency. */
static inline __attribute__((always_inline)) void
multiply_k_steps(size_t steps, struct micro_panels *p, enum l1_operand l1, struct tiles_thread *t)
{
    for (; steps > 0; steps--, p->left += KSTEP_BYTES, p->right += KSTEP_BYTES) {
        if (l1 == LEFT_IN_L1) {
            TILE_LOAD_VIA(6, p->right, false);
            TILE_LOAD_VIA(4, p->left, true);
            TILE_DOT(0, 4, 6);
            TILE_LOAD_VIA(5, p->left + 1024, true);
            TILE_DOT(2, 5, 6);
            TILE_LOAD_VIA(7, p->right + 1024, false);
            TILE_DOT(1, 4, 7);
        } else {
            TILE_LOAD_VIA(4, p->left, false);
            TILE_LOAD_VIA(6, p->right, l1 == RIGHT_IN_L1);
            TILE_DOT(0, 4, 6);
            TILE_LOAD_VIA(7, p->right + 1024, l1 == RIGHT_IN_L1);
            TILE_DOT(1, 4, 7);
            TILE_LOAD_VIA(5, p->left + 1024, false);
            TILE_DOT(2, 5, 6);
        }
        TILE_DOT(3, 5, 7);
        overlap_epilogue(t);
    }
}

/* The micro-kernel; the streamed operand is the one in L1.  Stores the accumulators that the tiles
 * hold to t->acc_dest, then starts with those at `begin`, or with 0. */
static inline __attribute__((always_inline)) void micro_kernel(size_t steps, struct micro_panels p,
                                                               const float *begin,
                                                               enum l1_operand streamed,
                                                               struct tiles_thread *t)
{
    bool left_l1 = streamed == LEFT_IN_L1;
    TILE_LOAD_VIA(4, p.left, left_l1);
    TILE_LOAD_VIA(6, p.right, !left_l1);
    SWAP_TILE(0, 0);
    TILE_DOT(0, 4, 6);
    TILE_LOAD_VIA(7, p.right + 1024, !left_l1);
    SWAP_TILE(1, 16);
    TILE_DOT(1, 4, 7);
    TILE_LOAD_VIA(5, p.left + 1024, left_l1);
    SWAP_TILE(2, MICRO_TILE_LOWER);
    TILE_DOT(2, 5, 6);
    SWAP_TILE(3, MICRO_TILE_LOWER + 16);
    TILE_DOT(3, 5, 7);
    p.left += KSTEP_BYTES, p.right += KSTEP_BYTES;
    if (t->rows && t->g->c_transposed) KERNEL(panel_transpose)(t->acc);
    size_t l1_steps = size_min(steps, L1_STEPS);
    multiply_k_steps(l1_steps - 1, &p, streamed, t);
    multiply_k_steps(steps - l1_steps, &p, NONE_IN_L1, t);
    store_rows(t, PANEL);
}

static void micro_kernel_left_streamed(size_t steps, struct micro_panels p, const float *begin,
                                       struct tiles_thread *t)
{
    micro_kernel(steps, p, begin, LEFT_IN_L1, t);
}

static void micro_kernel_right_streamed(size_t steps, struct micro_panels p, const float *begin,
                                        struct tiles_thread *t)
{
    micro_kernel(steps, p, begin, RIGHT_IN_L1, t);
}

/* Stores a thread's last micro-tile. */
static void flush_last_tile(struct tiles_thread *t)
{
    TILES_STORE(t->acc_dest);
    if (t->g->c_transposed) KERNEL(panel_transpose)(t->acc);
    store_rows(t, PANEL);
}

/* The first element of C that a cached and a streamed panel contribute to. */
static void c_origin(const struct tiles_gemm *g, size_t cached, size_t streamed, size_t *row,
                     size_t *column)
{
    size_t left = (g->left_streamed ? streamed : cached) * PANEL,
           right = (g->left_streamed ? cached : streamed) * PANEL;
    *row = g->c_transposed ? right : left, *column = g->c_transposed ? left : right;
}

/* Its offset in bytes. */
static size_t c_offset(const struct tiles_gemm *g, size_t row, size_t column)
{
    size_t at = panel_offset(g->s->c_paneled, row, column, (size_t)g->s->N);
    return at * dtype_bytes(g->s->out);
}

/* Panels of an operand from one k-step on: the first, and bytes from a panel to the next. */
struct panel_run {
    const char *at;
    size_t panel;
};

/* Of an operand in the panel layout, read in place. */
static struct panel_run paneled_panels(const struct operand *o, size_t panel, size_t step)
{
    size_t bytes = o->stride / PANEL * KSTEP_BYTES;
    return (struct panel_run){(const char *)o->x + panel * bytes + step * KSTEP_BYTES, bytes};
}

static struct panel_run streamed_run(const struct tiles_gemm *g, const struct macro_task *s)
{
    size_t bytes = g->steps * KSTEP_BYTES;
    if (g->streamed_paneled) return paneled_panels(&g->streamed, s->streamed, s->step);
    return (struct panel_run){g->panels + s->streamed * bytes + s->step * KSTEP_BYTES, bytes};
}

static struct panel_run cached_run(const struct tiles_gemm *g, const struct macro_task *s,
                                   const char *block)
{
    if (g->cached_paneled) return paneled_panels(&g->cached, s->cached, s->step);
    return (struct panel_run){block, (s->end - s->step) * KSTEP_BYTES};
}

static size_t block_lines(const struct macro_task *s)
{
    return (s->cached_end - s->cached) * (s->end - s->step) * (KSTEP_BYTES / 64);
}

/* Selects the lines of the next block that are prefetched during pair n of `pairs`. */
static void prefetch_block(struct tiles_thread *t, const struct macro_task *next, size_t n,
                           size_t pairs)
{
    const struct operand *o = &t->g->cached;
    size_t run_steps = o->mn_major ? next->cached_end - next->cached : next->end - next->step;
    size_t line = block_lines(next) * n / pairs, run_lines = run_steps * (KSTEP_BYTES / 64);
    size_t row = (o->mn_major ? next->step : next->cached) + line / run_lines;
    struct panel_run run = paneled_panels(o, row, o->mn_major ? next->cached : next->step);
    t->block_prefetch = run.at + line % run_lines * 64;
}

/* The macro-kernel: each streamed panel of the task times all panels of its cached block. Meanwhile
 * prefetches the block of the next task if it is in the panel layout. */
static void macro_kernel(struct tiles_thread *t, const struct macro_task *s,
                         const struct macro_task *next)
{
    const struct tiles_gemm *g = t->g;
    size_t block_panels = s->cached_end - s->cached, steps = s->end - s->step, row, column, n = 0;
    size_t pairs = (s->streamed_end - s->streamed) * block_panels;
    bool is_last_chunk = s->chunk + 1 == g->chunks;
    bool adds = g->epilogue == ADD_BF16 || g->epilogue == ADD_F32;
    struct panel_run streamed = streamed_run(g, s), cached = cached_run(g, s, t->block);
    t->streamed_lines_per_step =
        steps > 1 ? div_up(steps * KSTEP_BYTES / 64, (steps - 1) * block_panels) : 0;
    t->block_lines_per_step =
        next && steps > 1 ? div_up(block_lines(next), (steps - 1) * pairs) : 0;
    for (size_t streamed_panel = s->streamed; streamed_panel < s->streamed_end;
         streamed_panel++, streamed.at += streamed.panel) {
        t->streamed_prefetch = streamed.at + streamed.panel;
        for (size_t i = s->cached; i < s->cached_end; i++, n++) {
            const char *cached_panel = cached.at + (i - s->cached) * cached.panel;
            float *spill = t->spill + n * MICRO_TILE;
            c_origin(g, i, streamed_panel, &row, &column);
            t->spill_prefetch = s->chunk ? (const char *)(spill + MICRO_TILE) : NULL;
            t->d_prefetch = is_last_chunk && adds ? g->d + c_offset(g, row, column) : NULL;
            if (next) prefetch_block(t, next, n, pairs);
            if (g->left_streamed)
                micro_kernel_left_streamed(steps, (struct micro_panels){streamed.at, cached_panel},
                                           s->chunk ? spill : NULL, t);
            else
                micro_kernel_right_streamed(steps, (struct micro_panels){cached_panel, streamed.at},
                                            s->chunk ? spill : NULL, t);
            t->acc_dest = is_last_chunk ? t->acc : spill;
            if (!is_last_chunk) continue;
            t->acc_row = t->acc;
            t->d_row = g->d + c_offset(g, row, column), t->c_row = g->c + c_offset(g, row, column);
            t->rows = size_min(PANEL, (size_t)g->s->M - row);
            t->columns = size_min(PANEL, (size_t)g->s->N - column);
            t->epilogue =
                g->s->scaled || t->rows < PANEL || t->columns < PANEL ? STORE_ANY : g->epilogue;
        }
    }
}

/* k-steps [step, end) of an operand. */
static struct operand k_range(const struct operand *o, size_t step, size_t end)
{
    return operand_k_range(*o, step * PANEL, size_min(o->K, end * PANEL));
}

/* Claims the first chunk of the next block; false: none is left. */
static bool claim_block(struct tiles_gemm *g, struct macro_task *s)
{
    size_t n;
#pragma omp atomic capture
    n = g->next++;
    size_t r = n / g->groups, p = n % g->groups;
    *s = (struct macro_task){.cached = g->cached_panels * r / g->blocks,
                             .cached_end = g->cached_panels * (r + 1) / g->blocks,
                             .streamed = g->streamed_panels * p / g->groups,
                             .streamed_end = g->streamed_panels * (p + 1) / g->groups};
    return r < g->blocks;
}

/* The next chunk of the block, or the first of the next block; false: none is left. */
static bool next_task(struct tiles_gemm *g, struct macro_task *s)
{
    if (s->cached_end && s->chunk + 1 < g->chunks)
        s->chunk++;
    else if (!claim_block(g, s))
        return false;
    s->step = g->steps * s->chunk / g->chunks, s->end = g->steps * (s->chunk + 1) / g->chunks;
    return true;
}

static void run_tasks(struct tiles_thread *t)
{
    struct tiles_gemm *g = t->g;
    struct panel_format format = {.kind = PANEL_BF16, .right = g->left_streamed};
    struct macro_task next = {0}, s;
    bool more = next_task(g, &next), any = more;
    while (more) {
        s = next;
        more = next_task(g, &next);
        struct operand chunk = k_range(&g->cached, s.step, s.end);
        if (!g->cached_paneled)
            KERNEL(panel_pack)(&chunk, format, s.cached, s.cached_end - s.cached, t->block);
        macro_kernel(t, &s, g->cached.paneled && more ? &next : NULL);
    }
    if (any) flush_last_tile(t);
}

/* Packs in memory order. */
static void pack_streamed(const struct tiles_gemm *g)
{
    struct panel_format format = {
        .kind = PANEL_BF16, .right = !g->left_streamed, .steps = g->steps};
    size_t count = g->streamed.mn_major ? g->steps : g->streamed_panels;
#pragma omp for schedule(dynamic)
    for (size_t i = 0; i < count; i += PACK_GROUP) {
        size_t end = size_min(i + PACK_GROUP, count);
        if (g->streamed.mn_major) {
            struct operand part = k_range(&g->streamed, i, end);
            KERNEL(panel_pack)(&part, format, 0, g->streamed_panels, g->panels + i * KSTEP_BYTES);
        } else {
            KERNEL(panel_pack)
            (&g->streamed, format, i, end - i, g->panels + i * g->steps * KSTEP_BYTES);
        }
    }
}

static void run_thread(struct tiles_gemm *g, size_t block_bytes)
{
    char *scratch = g->scratch + (size_t)omp_get_thread_num() * g->scratch_bytes;
    struct tiles_thread t = {
        .g = g, .block = scratch, .acc = (float *)(void *)(scratch + block_bytes)};
    t.acc_dest = t.acc, t.spill = t.acc + MICRO_TILE;
    t.stride = (g->s->c_paneled ? PANEL : (size_t)g->s->N) * dtype_bytes(g->s->out);
    tiles_open();
    if (!g->streamed_paneled) pack_streamed(g);
    run_tasks(&t);
    vector_stream_fence();
    tiles_close();
}

static size_t streamed_size(const struct gemm_shape *s)
{
    return (size_t)(s->M < s->N ? s->M : s->N);
}

static size_t slice_steps(const struct gemm_shape *s)
{
    size_t depth =
        size_min(MAX_SLICE_STEPS, STREAMED_BYTES / KSTEP_BYTES / panel_count(streamed_size(s)));
    return depth > MIN_SLICE_STEPS ? depth : MIN_SLICE_STEPS;
}

/* Of a thread: the most that any blocking needs. */
static size_t block_bytes(const struct gemm_shape *s, size_t steps)
{
    size_t panels = panel_count((size_t)(s->M < s->N ? s->N : s->M));
    return size_min(panels * steps, L2_STEPS) * KSTEP_BYTES;
}

static size_t acc_bytes(const struct gemm_shape *s, size_t steps)
{
    size_t pairs = panel_count((size_t)s->M) * panel_count((size_t)s->N);
    return (1 + (steps > UNSPLIT_PANELED ? size_min(pairs, MAX_SPILLED) : 0)) * MICRO_TILE *
           sizeof(float);
}

static size_t streamed_bytes(const struct gemm_shape *s, size_t steps)
{
    return panel_count(streamed_size(s)) * steps * KSTEP_BYTES;
}

static size_t slice_bytes(const struct gemm_shape *s, size_t max_steps, int num_threads)
{
    return streamed_bytes(s, max_steps) +
           (size_t)num_threads * (block_bytes(s, max_steps) + acc_bytes(s, max_steps));
}

/* Chooses chunks, and blocks and groups such that all threads get equally many if possible. */
static void choose_tasks(struct tiles_gemm *g, const struct gemm_blocking *blocking, size_t threads)
{
    bool paneled = g->cached_paneled; /* no packed copy: room for more panels */
    size_t chunk_steps = size_min(UNSPLIT_STEPS, CHUNK_STEPS / 2 * (size_t)blocking->kc_halves),
           block = L2_STEPS / size_min(g->steps, L2_STEPS);
    g->chunks = g->groups = 1;
    if (g->steps > (paneled ? UNSPLIT_PANELED : UNSPLIT_STEPS)) {
        block = (size_t)blocking->mc + (paneled ? (size_t)blocking->mc / 4 : 0);
        g->chunks = div_up(g->steps, chunk_steps),
        g->groups = div_up(g->streamed_panels, MAX_SPILLED / block);
    }
    g->blocks =
        size_min(g->cached_panels, div_up(div_up(g->cached_panels, block), threads) * threads);
    while (g->blocks * g->groups < 2 * threads && g->groups < g->streamed_panels) g->groups++;
}

static enum epilogue epilogue_of(const struct gemm_shape *s)
{
    if (s->out == F32) return s->accumulate ? ADD_F32 : STORE_F32;
    return s->accumulate ? ADD_BF16 : STORE_BF16;
}

static void multiply_slice(const struct gemm_slice *p, void *memory)
{
    const struct gemm_shape *s = p->s;
    bool a_streamed = s->M <= s->N;
    struct tiles_gemm g = {
        .s = s, .d = p->d, .c = p->c, .epilogue = epilogue_of(s), .panels = memory};
    g.stream = s->N % PANEL == 0 && vector_is_aligned(p->c) && !(s->accumulate && p->d == p->c);
    g.c_transposed = p->a.mn_major && p->b.mn_major && !a_streamed;
    g.left_streamed = a_streamed != g.c_transposed;
    g.cached = a_streamed ? p->b : p->a, g.streamed = a_streamed ? p->a : p->b;
    g.cached_panels = panel_count(g.cached.mn_count),
    g.streamed_panels = panel_count(g.streamed.mn_count);
    g.steps = panel_count(p->a.K);
    bool left_paneled = p->a.paneled && !p->a.mn_major; /* as the left operand */
    g.cached_paneled = left_paneled && !g.left_streamed,
    g.streamed_paneled = left_paneled && g.left_streamed;
    choose_tasks(&g, p->blocking, (size_t)p->num_threads);
    g.scratch = g.panels + streamed_bytes(s, p->max_steps);
    size_t block = block_bytes(s, p->max_steps);
    g.scratch_bytes = block + acc_bytes(s, p->max_steps);
#pragma omp parallel num_threads(p->num_threads)
    run_thread(&g, block);
}

const struct gemm_loops KERNEL(gemm_tiles) = {slice_steps, slice_bytes, multiply_slice};

double KERNEL(microkernel_bench)(const void *panels, size_t bytes, long rounds)
{
    size_t steps = size_min(CHUNK_STEPS, bytes / (2 * KSTEP_BYTES));
    BUG_IF(!steps);
    size_t panel = steps * KSTEP_BYTES, count = bytes / panel;
    float acc[MICRO_TILE] __attribute__((aligned(64)));
    struct tiles_gemm g = {.epilogue = STORE_F32};
    struct tiles_thread t = {.g = &g, .acc = acc, .acc_dest = acc};
    tiles_open();
    for (long r = 0; r < rounds; r++)
        for (size_t i = 1; i < count; i++) {
            struct micro_panels p = {(const char *)panels + i * panel, panels};
            micro_kernel_right_streamed(steps, p, NULL, &t);
        }
    tiles_close();
    return 2.0 * PANEL * MICRO_TILE * (double)(steps * (count - 1)) * (double)rounds;
}
#endif
