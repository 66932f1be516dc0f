/* gemm_tiles.c (cpu) -- products for processors whose tiles multiply faster than memory, and
 * everything else a processor does, can follow.
 *
 * The operand with fewer lines passes: it is packed whole, first, by all threads.  The other one
 * is resident: a thread packs a block of its panels into the second level of the cache, where all
 * passing panels meet it, one after the other in the first level.  So both are packed once, and
 * what is read most lies nearest.  A left operand that lies as panels is taken where it is, and
 * the block that comes next is fetched beside the tiles.  Sums over more steps than fit the first
 * level are made in chunks, and wait as tiles in the second level; that loses no bit.
 *
 * While the tiles of a pair multiply, the vector units put the sums of the pair before in place
 * and fetch ahead what comes next.
 *
 * Of two operands that both lie across, the left one has to be turned as it is packed: that is
 * the narrower one, and where it belongs on the right, so is what it becomes.
 *
 * Share of the bf16 register peak in `llamero bench` on a Xeon with AMX, two threads, the shapes of
 * a 124.7M Llama: forward 37-65 %, gradient of the input 44-55 %, of the weights 28-47 %.  Fed from
 * the second level, the inner loop alone does 76 %; numbers like a model's keep even a burst in
 * registers at 85 % of what it does with zeros, for power.  The tiles' loads take most of what the
 * second level can give, so that whatever else passes it adds to the time: of a product of long
 * sums a seventh is sums that wait, a tenth passing panels, and of a weight's gradient a fifth is
 * packing.  Rows that are put past the caches are an eighth where sums are short and C lies in
 * rows.  Not faster: rows packed between the tiles' steps, or blocks that lie as panels; sums of
 * chunks that the vector units add up; pairs of 64 lines and 16, which read less of the second
 * level and begin more often. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm_engine.h"
#include "backends/cpu/kernels/panel_pairs.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#if defined(TILES)
#include <omp.h>

enum {
    PASSING_BYTES = 32 << 20, /* of a part: scratch memory */
    LEAST_DEPTH = 64,         /* steps of a part */
    MOST_DEPTH = 1024,
    WHOLE = 40,      /* steps that need no chunks */
    WHOLE_KEPT = 30, /* the same where nothing is packed */
    RESIDENT = 384,  /* steps of all panels of a block */
    CHUNK = 16,      /* steps, else */
    NEAR_STEPS = 18, /* of a passing panel that stay in the first level */
    WAITING = 200,   /* pairs whose sums wait */
    GROUP = 4,       /* panels, or steps of all panels, that are packed together */
};

static size_t up(size_t a, size_t b) { return (a + b - 1) / b; }

/* What becomes of sums: bf16 or f32, replaced or added to; or what is not whole, or scaled. */
enum put_kind { PUT_BF16, PUT_ADD_BF16, PUT_F32, PUT_ADD_F32, PUT_ANY };

/* One part under way. */
struct work {
    const struct product_shape *s;
    struct lines resident, passing;
    size_t resident_panels, passing_panels;
    bool left_passes;
    bool turned; /* rows of the tiles' sums are columns of C */
    enum put_kind kind;
    bool stream; /* rows are put past the caches: they are whole lines, and others than are read */
    const char *d;
    char *c;
    size_t steps, chunks;             /* along K; chunks of steps */
    size_t blocks, groups;            /* of resident and of passing panels */
    size_t next;                      /* block and group that no thread has taken */
    char *panels;                     /* passing, [panels][steps] */
    bool resident_kept, passing_kept; /* multiplied where it lies, as panels */
    char *near;                       /* of each thread, near_bytes: a block's chunk, then sums */
    size_t near_bytes;
};

/* A chunk of a block of resident panels, which meets a group of passing ones. */
struct stage {
    size_t r, r_end, p, p_end; /* panels */
    size_t chunk, step, end;
};

/* A thread's part. */
struct hand {
    struct work *w;
    char *block;       /* packed, [panels][steps of a chunk] */
    float *wait;       /* [group][block] sums between chunks */
    float *sums;       /* of the pair before */
    float *last;       /* where the tiles' sums go */
    const float *from; /* the next row of them */
    const char *old;   /* what is added to it */
    char *to;          /* its place */
    size_t rows;       /* that are left to put */
    size_t columns, stride;
    enum put_kind kind;
    /* next to fetch; the last three: or NULL */
    const char *passing_ahead, *block_ahead, *wait_ahead, *put_ahead;
    size_t passing_each, block_each; /* lines beside a step */
};

/* ---- beside the tiles ---- */

static void put_any(const struct hand *h)
{
    const struct product_shape *s = h->w->s;
    float out[PANEL], old[PANEL] = {0};
    if (s->accumulate) vector_load(h->old, 0, s->out, h->columns, old);
    for (size_t j = 0; j < PANEL; j++) out[j] = old[j] + (s->scaled ? s->scale : 1) * h->from[j];
    vector_store(h->to, 0, s->out, h->columns, out);
}

#if defined(__AVX512BF16__)
static inline __m512 widened(const void *sixteen)
{
    __m256i halves = _mm256_loadu_si256(sixteen);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* A row of 32 sums, with what is added to it.  stream: past the caches. */
static inline void put_row(enum put_kind kind, char *to, const float *from, const char *old,
                           bool stream)
{
    __m512 low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
    if (kind == PUT_ADD_BF16)
        low = _mm512_add_ps(low, widened(old)), high = _mm512_add_ps(high, widened(old + 32));
    if (kind == PUT_ADD_F32)
        low = _mm512_add_ps(low, _mm512_loadu_ps(old)),
        high = _mm512_add_ps(high, _mm512_loadu_ps(old + 64));
    if (kind == PUT_BF16 || kind == PUT_ADD_BF16) {
        pairs_put(to, (__m512i)_mm512_cvtne2ps_pbh(high, low), stream);
        return;
    }
    pairs_put(to, _mm512_castps_si512(low), stream);
    pairs_put(to + 64, _mm512_castps_si512(high), stream);
}
#else
static inline void put_row(enum put_kind kind, char *to, const float *from, const char *old,
                           bool stream)
{
    (void)stream;
    enum dtype dtype = kind == PUT_F32 || kind == PUT_ADD_F32 ? F32 : BF16;
    float added[PANEL] = {0}, out[PANEL];
    if (kind == PUT_ADD_BF16 || kind == PUT_ADD_F32) vector_load(old, 0, dtype, PANEL, added);
    for (size_t j = 0; j < PANEL; j++) out[j] = added[j] + from[j];
    vector_store(to, 0, dtype, PANEL, out);
}
#endif

static inline void put_rows(struct hand *h, size_t count)
{
    bool stream = h->w->stream;
    for (count = least(count, h->rows); count > 0; count--) {
        switch (h->kind) {
        case PUT_BF16: put_row(PUT_BF16, h->to, h->from, h->old, stream); break;
        case PUT_ADD_BF16: put_row(PUT_ADD_BF16, h->to, h->from, h->old, stream); break;
        case PUT_F32: put_row(PUT_F32, h->to, h->from, h->old, stream); break;
        case PUT_ADD_F32: put_row(PUT_ADD_F32, h->to, h->from, h->old, stream); break;
        case PUT_ANY: put_any(h); break;
        }
        h->rows--, h->from += PANEL, h->old += h->stride, h->to += h->stride;
    }
}

/* What the vector units do while four products of tiles are under way. */
static inline void aside(struct hand *h)
{
    put_rows(h, 2);
    for (size_t i = 0; i < h->passing_each; i++, h->passing_ahead += 64)
        __builtin_prefetch(h->passing_ahead, 0, 2);
    if (h->block_ahead)
        for (size_t i = 0; i < h->block_each; i++, h->block_ahead += 64)
            __builtin_prefetch(h->block_ahead, 0, 2);
    if (h->wait_ahead)
        for (int i = 0; i < 4; i++, h->wait_ahead += 64) __builtin_prefetch(h->wait_ahead);
    if (h->put_ahead)
        for (int i = 0; i < 2; i++, h->put_ahead += h->stride) {
            __builtin_prefetch(h->put_ahead);
            if (h->w->kind == PUT_ADD_F32) __builtin_prefetch(h->put_ahead + 64);
        }
}

/* ---- tiles ---- */

/* The quarter `at` of the sums goes where it belongs, and begins anew. */
#define BEGIN(t, at)                                                                               \
    do {                                                                                           \
        TILE_STORE(t, h->last + (at), PANEL * sizeof(float));                                      \
        if (begin)                                                                                 \
            TILE_LOAD(t, begin + (at), PANEL * sizeof(float));                                     \
        else                                                                                       \
            TILE_ZERO(t);                                                                          \
    } while (0)

/* What the first level has is loaded last: the other has farther to come. */
static inline __attribute__((always_inline)) void multiply_steps(size_t steps, const char **left,
                                                                 const char **right, bool left_near,
                                                                 bool right_near, struct hand *h)
{
    for (; steps > 0; steps--, *left += STEP, *right += STEP) {
        if (left_near) {
            TILE_TAKE(6, *right, right_near);
            TILE_TAKE(4, *left, left_near);
            TILE_DOT(0, 4, 6);
            TILE_TAKE(5, *left + 1024, left_near);
            TILE_DOT(2, 5, 6);
            TILE_TAKE(7, *right + 1024, right_near);
            TILE_DOT(1, 4, 7);
        } else {
            TILE_TAKE(4, *left, left_near);
            TILE_TAKE(6, *right, right_near);
            TILE_DOT(0, 4, 6);
            TILE_TAKE(7, *right + 1024, right_near);
            TILE_DOT(1, 4, 7);
            TILE_TAKE(5, *left + 1024, left_near);
            TILE_DOT(2, 5, 6);
        }
        TILE_DOT(3, 5, 7);
        aside(h);
    }
}

/* The sums in the tiles go to h->last, and begin anew with those at `begin`, or with 0. */
static inline __attribute__((always_inline)) void multiply(size_t steps, const char *left,
                                                           const char *right, const float *begin,
                                                           bool left_passes, struct hand *h)
{
    TILE_TAKE(4, left, left_passes);
    TILE_TAKE(6, right, !left_passes);
    BEGIN(0, 0);
    TILE_DOT(0, 4, 6);
    TILE_TAKE(7, right + 1024, !left_passes);
    BEGIN(1, 16);
    TILE_DOT(1, 4, 7);
    TILE_TAKE(5, left + 1024, left_passes);
    BEGIN(2, LOWER);
    TILE_DOT(2, 5, 6);
    BEGIN(3, LOWER + 16);
    TILE_DOT(3, 5, 7);
    left += STEP, right += STEP;
    if (h->rows && h->w->turned) KERNEL(panel_turn)(h->sums);
    size_t near = least(steps, NEAR_STEPS);
    multiply_steps(near - 1, &left, &right, left_passes, !left_passes, h);
    multiply_steps(steps - near, &left, &right, false, false, h);
    put_rows(h, PANEL);
}

static void multiply_left_passes(size_t steps, const char *left, const char *right,
                                 const float *begin, struct hand *h)
{
    multiply(steps, left, right, begin, true, h);
}

static void multiply_right_passes(size_t steps, const char *left, const char *right,
                                  const float *begin, struct hand *h)
{
    multiply(steps, left, right, begin, false, h);
}

/* The last sums of a thread. */
static void flush(struct hand *h)
{
    TILES_STORE(h->last);
    if (h->w->turned) KERNEL(panel_turn)(h->sums);
    put_rows(h, PANEL);
}

/* ---- stages ---- */

/* The element of C where the sums of resident panel r and passing panel p begin. */
static void find(const struct work *w, size_t r, size_t p, size_t *row, size_t *column)
{
    size_t left = (w->left_passes ? p : r) * PANEL, right = (w->left_passes ? r : p) * PANEL;
    *row = w->turned ? right : left, *column = w->turned ? left : right;
}

/* Bytes to it. */
static size_t place(const struct work *w, size_t row, size_t column)
{
    size_t at = panels_at(w->s->c_paneled, row, column, (size_t)w->s->N);
    return at * dtype_bytes(w->s->out);
}

/* The steps of a stage of an operand: of its first panel, and bytes from one to the next. */
struct side {
    const char *at;
    size_t panel;
};

/* Of a paneled operand, where it lies. */
static struct side side_kept(const struct lines *l, size_t panel, size_t step)
{
    size_t bytes = l->stride / PANEL * STEP;
    return (struct side){(const char *)l->x + panel * bytes + step * STEP, bytes};
}

static struct side passing_side(const struct work *w, const struct stage *s)
{
    size_t bytes = w->steps * STEP;
    if (w->passing_kept) return side_kept(&w->passing, s->p, s->step);
    return (struct side){w->panels + s->p * bytes + s->step * STEP, bytes};
}

static struct side resident_side(const struct work *w, const struct stage *s, const char *block)
{
    if (w->resident_kept) return side_kept(&w->resident, s->r, s->step);
    return (struct side){block, (s->end - s->step) * STEP};
}

static size_t block_lines(const struct stage *s)
{
    return (s->r_end - s->r) * (s->end - s->step) * (STEP / 64);
}

/* Which lines of the next stage's block, as it lies, are fetched beside pair n of so many. */
static void fetch_block(struct hand *h, const struct stage *next, size_t n, size_t pairs)
{
    const struct lines *l = &h->w->resident;
    size_t run = l->across ? next->r_end - next->r : next->end - next->step;
    size_t line = block_lines(next) * n / pairs, lines = run * (STEP / 64);
    size_t row = (l->across ? next->step : next->r) + line / lines;
    struct side from = side_kept(l, row, l->across ? next->r : next->step);
    h->block_ahead = from.at + line % lines * 64;
}

/* All passing panels of a stage meet its block; the first level keeps one at a time.  Beside them
 * the block of the stage that follows is fetched, if it lies as panels, in whole lines. */
static void multiply_stage(struct hand *h, const struct stage *s, const struct stage *next)
{
    const struct work *w = h->w;
    size_t width = s->r_end - s->r, steps = s->end - s->step, row, column, n = 0;
    size_t pairs = (s->p_end - s->p) * width;
    bool last = s->chunk + 1 == w->chunks;
    bool adds = w->kind == PUT_ADD_BF16 || w->kind == PUT_ADD_F32;
    struct side passing = passing_side(w, s), resident = resident_side(w, s, h->block);
    h->passing_each = steps > 1 ? up(steps * STEP / 64, (steps - 1) * width) : 0;
    h->block_each = next && steps > 1 ? up(block_lines(next), (steps - 1) * pairs) : 0;
    for (size_t p = s->p; p < s->p_end; p++, passing.at += passing.panel) {
        h->passing_ahead = passing.at + passing.panel;
        for (size_t r = s->r; r < s->r_end; r++, n++) {
            const char *here = resident.at + (r - s->r) * resident.panel;
            float *wait = h->wait + n * SUMS;
            find(w, r, p, &row, &column);
            h->wait_ahead = s->chunk ? (const char *)(wait + SUMS) : NULL;
            h->put_ahead = last && adds ? w->d + place(w, row, column) : NULL;
            if (next) fetch_block(h, next, n, pairs);
            if (w->left_passes)
                multiply_left_passes(steps, passing.at, here, s->chunk ? wait : NULL, h);
            else
                multiply_right_passes(steps, here, passing.at, s->chunk ? wait : NULL, h);
            h->last = last ? h->sums : wait;
            if (!last) continue;
            h->from = h->sums;
            h->old = w->d + place(w, row, column), h->to = w->c + place(w, row, column);
            h->rows = least(PANEL, (size_t)w->s->M - row);
            h->columns = least(PANEL, (size_t)w->s->N - column);
            h->kind = w->s->scaled || h->rows < PANEL || h->columns < PANEL ? PUT_ANY : w->kind;
        }
    }
}

/* Steps [step, end) of an operand. */
static struct lines steps_of(const struct lines *l, size_t step, size_t end)
{
    return lines_part(*l, step * PANEL, least(l->K, end * PANEL));
}

/* The first chunk of a block that nobody has taken; false: there is none. */
static bool take_block(struct work *w, struct stage *s)
{
    size_t n;
#pragma omp atomic capture
    n = w->next++;
    size_t r = n / w->groups, p = n % w->groups;
    *s = (struct stage){.r = w->resident_panels * r / w->blocks,
                        .r_end = w->resident_panels * (r + 1) / w->blocks,
                        .p = w->passing_panels * p / w->groups,
                        .p_end = w->passing_panels * (p + 1) / w->groups};
    return r < w->blocks;
}

/* The next chunk of the block, or the first of the next block; false: that was all. */
static bool advance(struct work *w, struct stage *s)
{
    if (s->r_end && s->chunk + 1 < w->chunks)
        s->chunk++;
    else if (!take_block(w, s))
        return false;
    s->step = w->steps * s->chunk / w->chunks, s->end = w->steps * (s->chunk + 1) / w->chunks;
    return true;
}

static void multiply_blocks(struct hand *h)
{
    struct work *w = h->w;
    struct panel_form form = {.kind = PAIRS, .right = w->left_passes};
    struct stage next = {0}, s;
    bool more = advance(w, &next), some = more;
    while (more) {
        s = next;
        more = advance(w, &next);
        struct lines lines = steps_of(&w->resident, s.step, s.end);
        if (!w->resident_kept) KERNEL(panel_pack)(&lines, form, s.r, s.r_end - s.r, h->block);
        multiply_stage(h, &s, w->resident.paneled && more ? &next : NULL);
    }
    if (some) flush(h);
}

/* Memory is read in the order in which it lies. */
static void pack_passing(const struct work *w)
{
    struct panel_form form = {.kind = PAIRS, .right = !w->left_passes, .steps = w->steps};
    size_t count = w->passing.across ? w->steps : w->passing_panels;
#pragma omp for schedule(dynamic)
    for (size_t i = 0; i < count; i += GROUP) {
        size_t end = least(i + GROUP, count);
        if (w->passing.across) {
            struct lines some = steps_of(&w->passing, i, end);
            KERNEL(panel_pack)(&some, form, 0, w->passing_panels, w->panels + i * STEP);
        } else {
            KERNEL(panel_pack)
            (&w->passing, form, i, end - i, w->panels + i * w->steps * STEP);
        }
    }
}

static void run(struct work *w, size_t block_bytes)
{
    char *near = w->near + (size_t)omp_get_thread_num() * w->near_bytes;
    struct hand h = {.w = w, .block = near, .sums = (float *)(void *)(near + block_bytes)};
    h.last = h.sums, h.wait = h.sums + SUMS;
    h.stride = (w->s->c_paneled ? PANEL : (size_t)w->s->N) * dtype_bytes(w->s->out);
    tiles_open();
    if (!w->passing_kept) pack_passing(w);
    multiply_blocks(&h);
    vector_stream_end();
    tiles_close();
}

/* ---- sizes ---- */

static size_t passing_lines(const struct product_shape *s)
{
    return (size_t)(s->M < s->N ? s->M : s->N);
}

size_t KERNEL(gemm_depth)(const struct product_shape *s)
{
    size_t depth = least(MOST_DEPTH, PASSING_BYTES / STEP / panels_of(passing_lines(s)));
    return depth > LEAST_DEPTH ? depth : LEAST_DEPTH;
}

/* Of a thread: the most that any way takes. */
static size_t block_bytes(const struct product_shape *s, size_t steps)
{
    size_t panels = panels_of((size_t)(s->M < s->N ? s->N : s->M));
    return least(panels * steps, RESIDENT) * STEP;
}

static size_t sums_bytes(const struct product_shape *s, size_t steps)
{
    size_t pairs = panels_of((size_t)s->M) * panels_of((size_t)s->N);
    return (1 + (steps > WHOLE_KEPT ? least(pairs, WAITING) : 0)) * SUMS * sizeof(float);
}

static size_t passing_bytes(const struct product_shape *s, size_t steps)
{
    return panels_of(passing_lines(s)) * steps * STEP;
}

size_t KERNEL(gemm_bytes)(const struct product_shape *s, size_t deepest, int num_threads)
{
    return passing_bytes(s, deepest) +
           (size_t)num_threads * (block_bytes(s, deepest) + sums_bytes(s, deepest));
}

/* Chunks, and blocks and groups of which each thread gets as many, if there are enough. */
static void cut(struct work *w, const struct way *way, size_t threads)
{
    bool stays = w->resident_kept; /* nothing is packed: room for more panels */
    size_t deep = least(WHOLE, CHUNK / 2 * (size_t)way->near_halves),
           block = RESIDENT / least(w->steps, RESIDENT);
    w->chunks = w->groups = 1;
    if (w->steps > (stays ? WHOLE_KEPT : WHOLE)) {
        block = (size_t)way->rows + (stays ? (size_t)way->rows / 4 : 0);
        w->chunks = up(w->steps, deep), w->groups = up(w->passing_panels, WAITING / block);
    }
    w->blocks = least(w->resident_panels, up(up(w->resident_panels, block), threads) * threads);
    while (w->blocks * w->groups < 2 * threads && w->groups < w->passing_panels) w->groups++;
}

static enum put_kind kind_of(const struct product_shape *s)
{
    if (s->out == F32) return s->accumulate ? PUT_ADD_F32 : PUT_F32;
    return s->accumulate ? PUT_ADD_BF16 : PUT_BF16;
}

void KERNEL(gemm_multiply)(const struct gemm_part *p, void *memory)
{
    const struct product_shape *s = p->s;
    bool a_passes = s->M <= s->N;
    struct work w = {.s = s, .d = p->d, .c = p->c, .kind = kind_of(s), .panels = memory};
    w.stream = s->N % PANEL == 0 && vector_is_line(p->c) && !(s->accumulate && p->d == p->c);
    w.turned = p->a.across && p->b.across && !a_passes;
    w.left_passes = a_passes != w.turned;
    w.resident = a_passes ? p->b : p->a, w.passing = a_passes ? p->a : p->b;
    w.resident_panels = panels_of(w.resident.size), w.passing_panels = panels_of(w.passing.size);
    w.steps = panels_of(p->a.K);
    bool kept = p->a.paneled && !p->a.across; /* as the left operand */
    w.resident_kept = kept && !w.left_passes, w.passing_kept = kept && w.left_passes;
    cut(&w, p->way, (size_t)p->num_threads);
    w.near = w.panels + passing_bytes(s, p->deepest);
    size_t block = block_bytes(s, p->deepest);
    w.near_bytes = block + sums_bytes(s, p->deepest);
#pragma omp parallel num_threads(p->num_threads)
    run(&w, block);
}

double KERNEL(feed)(const void *panels, size_t bytes, long rounds)
{
    size_t steps = least(CHUNK, bytes / (2 * STEP));
    BUG_IF(!steps);
    size_t panel = steps * STEP, count = bytes / panel;
    float sums[SUMS] __attribute__((aligned(64)));
    struct work w = {.kind = PUT_F32};
    struct hand h = {.w = &w, .sums = sums, .last = sums};
    tiles_open();
    for (long r = 0; r < rounds; r++)
        for (size_t i = 1; i < count; i++)
            multiply_right_passes(steps, (const char *)panels + i * panel, panels, NULL, &h);
    tiles_close();
    return 2.0 * PANEL * SUMS * (double)(steps * (count - 1)) * (double)rounds;
}
#endif
