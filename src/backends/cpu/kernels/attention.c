/* attention.c (cpu) -- flash attention (Dao et al. 2022, alg. 1; Dao 2023, alg. 2) on panels.
 *
 * Scores are computed transposed, S^T = K q^T: a row is a key, a lane is a query, so that the top
 * and the sum of a query need no sums across lanes, and exp(S^T) is already the right operand of
 * out^T = v^T exp(S^T).  32 keys meet 32 queries in one product of panels; T x T is never stored.
 * Order    Forward: a panel of queries passes over its keys in order.  Backward: one task owns a
 *          key/value head of a row and passes over query heads, queries, keys in order.  Neither
 *          depends on the number of threads.
 * Memory   Forward packs the keys and values of one row, once for all its queries.  Backward takes
 *          about 14 (F32: 20) bytes for each element of a head's keys in each thread.
 * Limits   With fewer key/value heads times rows than threads, backward leaves threads idle.
 * Speed    `llamero bench` on Zen 5, two threads, T=1024, K=64, causal: forward 47 %, backward 65 %
 *          of the bf16 register peak; less where a head's keys and values outgrow the second cache
 *          (from T=8192).  Not measured on AMX. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "backends/cpu/kernels/attention_back.h"
#include "backends/cpu/kernels/attention_few.h"
#include "backends/cpu/kernels/attention_pack.h"
#include "backends/cpu/kernels/attention_pass.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <omp.h>

enum {
    GROUP = BACK_GROUP, /* panels that are handled at once */
    SUMS = PANEL * PANEL,
};

/* What follows from the sizes alone. */
struct plan {
    const struct attention *a;
    enum panel_kind kind;
    size_t keys, queries, widths; /* panels along S, T and K */
    size_t step;                  /* bytes */
    struct panel_form left, right;
    bool tiled; /* on tiles, by attention_pass.h and attention_back.h */
};

static struct plan plan_of(const struct attention *a)
{
    enum panel_kind kind = a->dtype == BF16 ? KERNEL(panel_kind)() : FLOATS;
    return (struct plan){.a = a,
                         .kind = kind,
                         .keys = panels_of((size_t)a->S),
                         .queries = panels_of((size_t)a->T),
                         .widths = panels_of((size_t)a->K),
                         .step = panel_step_bytes(kind),
                         .tiled = TILED && kind == PAIRS && a->scale > 0,
                         .left = {.kind = kind},
                         .right = {.kind = kind, .right = true}};
}

static size_t heads_each(const struct attention *a) { return (size_t)a->H / (size_t)a->G; }

static inline uint32_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits + 0x7FFFu + (bits >> 16 & 1);
}

/* Two rows of sums to the 32 words that a step of a right panel of pairs holds of them. */
static inline void put_pair(const float *low, const float *high, size_t pair, uint32_t *to)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t i = 0; i < 16; i++)
            to[half * 256 + pair * 16 + i] =
                rounded(low[half * 16 + i]) >> 16 | (rounded(high[half * 16 + i]) & 0xFFFF0000u);
}

/* Sums [32 k][32 lines] as a step of a right panel. */
static void to_right(enum panel_kind kind, const float *sums, void *to)
{
    if (kind == FLOATS) {
        memcpy(to, sums, SUMS * sizeof *sums);
        return;
    }
    for (size_t pair = 0; pair < 16; pair++)
        put_pair(sums + 2 * pair * PANEL, sums + (2 * pair + 1) * PANEL, pair, to);
}

/* Sums [32 lines][32 k] as a step of a left panel; FLOATS: uses up the sums. */
static void to_left(enum panel_kind kind, float *sums, void *to)
{
    if (kind == PAIRS) {
        for (size_t i = 0; i < SUMS; i++) ((bf16 *)to)[i] = (bf16)(rounded(sums[i]) >> 16);
        return;
    }
    KERNEL(panel_turn)(sums);
    memcpy(to, sums, SUMS * sizeof *sums);
}

/* Rows [count][K] at x + at, `stride` apart, as lines; across: as K lines of `count`. */
static struct lines rows(const struct attention *a, const void *x, size_t at, size_t stride,
                         size_t count, bool across)
{
    struct lines l = {(const char *)x + at * dtype_bytes(a->dtype),
                      a->dtype,
                      count,
                      (size_t)a->K,
                      stride,
                      across};
    if (across) l.size = (size_t)a->K, l.K = count;
    return l;
}

/* Of such rows of bf16 a panel from row `skip`. */
static struct attention_rows rows_of(const struct plan *p, const void *x, size_t at, size_t stride,
                                     size_t count, size_t skip)
{
    const bf16 *from = (const bf16 *)x + at + skip * stride;
    return (struct attention_rows){from, stride, least(PANEL, count - skip), (size_t)p->a->K,
                                   p->widths};
}

/* Rows of keys as left panels. */
static void pack_keys(const struct plan *p, const void *x, size_t at, char *to)
{
    const struct attention *a = p->a;
    size_t S = (size_t)a->S, bytes = p->widths * p->step;
    struct lines l = rows(a, x, at, a->kv_stride, S, false);
    if (!p->tiled) KERNEL(panel_pack)(&l, p->left, 0, p->keys, to);
    for (size_t s = 0; s < S && p->tiled; s += PANEL) {
        struct attention_rows r = rows_of(p, x, at, a->kv_stride, S, s);
        KERNEL(attention_pack_left)(&r, to + s / PANEL * bytes, p->step);
    }
}

/* Rows of x become factor times sums, and `kept` times what they were. */
struct rows_put {
    void *x;
    size_t at, stride;
    enum dtype dtype;
    const float *factor, *kept; /* of each row; kept NULL: 0 */
};

/* Sums of 64 of K, [2][32 of K][32 queries], to `count` rows of bf16: turned as pairs. */
static void put_pairs(const float *sums, size_t K, size_t count, const struct rows_put *to,
                      size_t at)
{
    uint32_t words[PANEL][PANEL];
    size_t pairs = panels_of(K) * (PANEL / 2);
    if (pairs < PANEL) memset(words[pairs], 0, sizeof words / 2);
    for (size_t pair = 0; pair < pairs; pair++) {
        const float *low = sums + 2 * pair * PANEL, *high = low + PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++)
            words[pair][i] = rounded(low[i] * to->factor[i]) >> 16 |
                             (rounded(high[i] * to->factor[i]) & 0xFFFF0000u);
    }
    float turned[SUMS];
    memcpy(turned, words, sizeof turned);
    KERNEL(panel_turn)(turned);
    for (size_t i = 0; i < count; i++) {
        bf16 *row = (bf16 *)to->x + at + i * to->stride;
        if (K == 2 * PANEL) /* a copy of known size is a register's, others are slow */
            memcpy(row, turned + i * PANEL, PANEL * sizeof *turned);
        else
            memcpy(row, turned + i * PANEL, K * sizeof *row);
    }
}

/* Sums [widths][32 of K][32 queries] to `count` rows. */
static void put_turned(const struct plan *p, float *sums, size_t count, const struct rows_put *to)
{
    size_t all = (size_t)p->a->K;
    for (size_t k = 0; to->dtype == BF16 && k < all; k += 2 * PANEL)
        put_pairs(sums + k * PANEL, least(2 * PANEL, all - k), count, to, to->at + k);
    for (size_t w = 0; to->dtype == F32 && w < p->widths; w++) {
        float *panel = sums + w * SUMS;
        size_t K = least(PANEL, (size_t)p->a->K - w * PANEL);
        KERNEL(panel_turn)(panel);
        for (size_t i = 0; i < count; i++) {
            size_t at = to->at + i * to->stride + w * PANEL;
            float row[PANEL], old[PANEL] = {0};
            for (size_t k = 0; k < PANEL; k++) row[k] = panel[i * PANEL + k] * to->factor[i];
            if (to->kept) {
                vector_load(to->x, at, to->dtype, K, old);
                for (size_t k = 0; k < PANEL; k++) row[k] += to->kept[i] * old[k];
            }
            vector_store(to->x, at, to->dtype, K, row);
        }
    }
}

/* ---- forward ---- */

/* One thread's buffers: a panel of queries meets GROUP panels of keys. */
struct forward {
    float *scores;        /* [GROUP][32 keys][32 queries] */
    float *out;           /* [widths][32 of K][32 queries] */
    void *queries, *odds; /* [widths] and [2 GROUP] steps of right panels */
    float top[PANEL], sum[PANEL];
};

static size_t forward_bytes(const struct plan *p)
{
    return (GROUP + p->widths) * SUMS * sizeof(float) + (2 * GROUP + p->widths) * p->step;
}

static struct forward forward_at(const struct plan *p, char *at)
{
    struct forward f = {.scores = (float *)at, .out = (float *)at + GROUP * SUMS};
    f.queries = f.out + p->widths * SUMS;
    f.odds = (char *)f.queries + p->widths * p->step;
    for (size_t i = 0; i < PANEL; i++) f.top[i] = -1e30f;
    memset(f.out, 0, p->widths * SUMS * sizeof *f.out);
    return f;
}

/* The top of each query's scores so far.  Sums stay relative to the old top until a new one is so
 * far above it that numbers might grow large. */
static void raise_top(const struct plan *p, struct forward *f, size_t count)
{
    enum { FAR = 8 };
    float top[PANEL], keep[PANEL];
    int higher = 0;
    memcpy(top, f->top, sizeof top);
    for (size_t k = 0; k < count * PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            float x = f->scores[k * PANEL + i];
            top[i] = x > top[i] ? x : top[i];
        }
    for (size_t i = 0; i < PANEL; i++) higher |= top[i] > f->top[i] + FAR;
    if (!higher) return;
    for (size_t i = 0; i < PANEL; i++) keep[i] = vector_exp(f->top[i] - top[i]);
    for (size_t i = 0; i < PANEL; i++) f->sum[i] *= keep[i], f->top[i] = top[i];
    for (size_t k = 0; k < p->widths * PANEL; k++)
        for (size_t i = 0; i < PANEL; i++) f->out[k * PANEL + i] *= keep[i];
}

/* Scores to e^(score - top), as steps of a right panel; their sums. */
static inline void soften(struct forward *f, enum panel_kind kind, enum dtype dtype, size_t count)
{
    float sum[PANEL] = {0};
    for (size_t k = 0; k < count * PANEL; k += 2) {
        float *low = f->scores + k * PANEL, *high = low + PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            low[i] = vector_exp_for(dtype, low[i] - f->top[i]);
            high[i] = vector_exp_for(dtype, high[i] - f->top[i]);
            sum[i] += low[i] + high[i];
        }
        if (kind == PAIRS)
            put_pair(low, high, k % PANEL / 2, (uint32_t *)f->odds + k / PANEL * (SUMS / 2));
    }
    for (size_t i = 0; i < PANEL; i++) f->sum[i] += sum[i];
}

/* The panel of queries meets panels of keys [first, first + count). */
static void meet(const struct plan *p, struct forward *f, const struct sight *s, const char *keys,
                 const char *values, size_t first, size_t count)
{
    float factor = p->a->scale;
    for (size_t i = 0; i < count; i++) {
        float *scores = f->scores + i * SUMS;
        struct left_panel k = panel_packed(p->kind, keys + (first + i) * p->widths * p->step);
        KERNEL(panel_multiply)(p->kind, p->widths, k, f->queries, scores, false);
        for (size_t n = 0; n < SUMS; n++) scores[n] *= factor;
        mask(s, first + i, scores);
    }
    raise_top(p, f, count);
    if (p->a->dtype == F32)
        soften(f, FLOATS, F32, count);
    else if (p->kind == FLOATS)
        soften(f, FLOATS, BF16, count);
    else
        soften(f, PAIRS, BF16, count);
    const void *odds = p->kind == PAIRS ? f->odds : f->scores;
    for (size_t w = 0; w < p->widths; w++) {
        struct left_panel v = panel_packed(p->kind, values + (w * p->keys + first) * p->step);
        KERNEL(panel_multiply)(p->kind, count, v, odds, f->out + w * SUMS, true);
    }
}

/* The same with all panels of keys [begin, end), where there are tiles. */
static void pass(const struct plan *p, struct forward *f, const struct sight *s, const char *keys,
                 const char *values, size_t begin, size_t end)
{
    const float log_2 = 0.693147181f;
    struct pass on = {.widths = p->widths,
                      .keys = p->keys,
                      .left = keys,
                      .values = values,
                      .queries = f->queries,
                      .scores = f->scores,
                      .odds = f->odds,
                      .out = f->out,
                      .factor = p->a->scale / log_2};
    memcpy(on.top, f->top, sizeof on.top);
    memset(on.sum, 0, sizeof on.sum);
    KERNEL(attention_pass)(&on, s, begin, end);
    memcpy(f->sum, on.sum, sizeof f->sum);
    for (size_t i = 0; i < PANEL; i++) f->top[i] = on.top[i] * log_2;
}

/* What a row's queries read: packed keys and values of all its key/value heads. */
struct packed {
    char *keys, *values;
};

static void pack_row(const struct plan *p, const struct attention_fwd *io, const struct packed *to,
                     size_t b)
{
    const struct attention *a = p->a;
    size_t head = p->keys * p->widths * p->step, S = (size_t)a->S;
#pragma omp for schedule(static)
    for (size_t g = 0; g < (size_t)a->G; g++) {
        size_t at = b * S * a->kv_stride + g * (size_t)a->K;
        struct lines v = rows(a, io->v_BSGK, at, a->kv_stride, S, true);
        pack_keys(p, io->k_BSGK, at, to->keys + g * head);
        KERNEL(panel_pack)(&v, p->left, 0, p->widths, to->values + g * head);
    }
}

/* A panel's out and lse, joined with those of the keys before where there are some. */
static void put_out(const struct plan *p, const struct attention_fwd *io, struct forward *f,
                    size_t b, size_t h, size_t first, size_t count)
{
    const struct attention *a = p->a;
    size_t T = (size_t)a->T, K = (size_t)a->K, H = (size_t)a->H;
    bool more = a->keys == MORE_KEYS;
    float *lse = io->lse_BHT + (b * H + h) * T + first, factor[PANEL], kept[PANEL] = {0};
    struct rows_put to = {.x = io->out_BTHK,
                          .at = ((b * T + first) * H + h) * K,
                          .stride = H * K,
                          .dtype = a->keys ? F32 : a->dtype,
                          .factor = factor,
                          .kept = more ? kept : NULL};
    for (size_t i = 0; i < count; i++) {
        bool sees = f->sum[i] != 0; /* NaN goes on as NaN */
        float here = sees ? f->top[i] + logf(f->sum[i]) : -INFINITY;
        float all = more ? lse_join(lse[i], here) : here;
        factor[i] = !sees ? 0 : more ? expf(f->top[i] - all) : 1 / f->sum[i];
        if (more && lse[i] != -INFINITY) kept[i] = expf(lse[i] - all);
        lse[i] = all;
    }
    put_turned(p, f->out, count, &to);
}

/* Queries first.. of head h of row b. */
static void attend(const struct plan *p, const struct attention_fwd *io, const struct packed *kv,
                   size_t b, size_t h, size_t first, char *buffers)
{
    const struct attention *a = p->a;
    size_t T = (size_t)a->T, K = (size_t)a->K, count = least(PANEL, T - first);
    size_t head = h / heads_each(a) * p->keys * p->widths * p->step;
    struct forward f = forward_at(p, buffers);
    struct sight s;
    struct lines q =
        rows(a, io->q_BTHK, (b * T + first) * a->q_stride + h * K, a->q_stride, count, false);
    look(a, io->start_BT, io->end_BT, b, first, &s);
    if (a->keys == MORE_KEYS && s.some_begin >= s.some_end) return;
    if (p->tiled) {
        struct attention_rows r = rows_of(p, q.x, 0, a->q_stride, count, 0);
        KERNEL(attention_pack_right)(&r, f.queries, p->step);
    } else {
        KERNEL(panel_pack)(&q, p->right, 0, 1, f.queries);
    }
    size_t begin = (size_t)s.some_begin / PANEL, end = panels_of((size_t)s.some_end);
    if (p->tiled)
        pass(p, &f, &s, kv->keys + head, kv->values + head, begin, end);
    else
        for (size_t k = begin; k < end; k += GROUP)
            meet(p, &f, &s, kv->keys + head, kv->values + head, k, least(GROUP, end - k));
    put_out(p, io, &f, b, h, first, count);
}

enum status KERNEL(attention_forward)(const struct attention *a, const struct attention_fwd *io,
                                      struct queue *on)
{
    if (a->T <= FEW_QUERIES && a->keys == ALL_KEYS) {
        TRY(KERNEL(attention_few)(a, io, on));
        return STATUS_OK;
    }
    struct plan p = plan_of(a);
    size_t each = forward_bytes(&p), mark = arena_mark(&on->scratch);
    size_t head = p.keys * p.widths * p.step, tasks = p.queries * (size_t)a->H;
    size_t E = heads_each(a);
    struct packed kv;
    kv.keys = arena_take(&on->scratch, (size_t)a->G, head);
    kv.values = arena_take(&on->scratch, (size_t)a->G, head);
    char *buffers = arena_take(&on->scratch, (size_t)on->num_threads, each);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
#pragma omp parallel num_threads(on->num_threads)
    {
        tiles_open();
        for (size_t b = 0; b < (size_t)a->B; b++) {
            pack_row(&p, io, &kv, b);
#pragma omp for schedule(dynamic)
            for (size_t n = 0; n < tasks;
                 n++) { /* of those that read the same, the longest first */
                size_t group = n / (p.queries * E), of = n % (p.queries * E);
                attend(&p, io, &kv, b, group * E + of % E, (p.queries - 1 - of / E) * PANEL,
                       buffers + (size_t)omp_get_thread_num() * each);
            }
        }
        tiles_close();
    }
    return STATUS_OK;
}

/* ---- backward ---- */

/* One thread's buffers for a key/value head of a row, and for GROUP panels of queries of a head.
 * Steps are of panels; left, right: which side of a product they stand on. */
struct backward {
    char *keys, *keys_turned, *values;  /* left: [keys][widths], [widths][keys], [keys][widths] */
    float *dkeys, *dvalues;             /* [keys][widths] sums */
    char *queries, *dout;               /* right: [GROUP][widths] */
    char *queries_turned, *dout_turned; /* right: [widths][panels] */
    char *odds, *dscores;               /* left: [GROUP], of one panel of keys; tiled: of two */
    char *dscores_right;                /* right: [GROUP queries][GROUP keys] */
    float *dqueries;                    /* [GROUP][widths] sums, turned */
    float *scores, *dodds;              /* [32 keys][32 queries]; tiled: [3], [2] */
    size_t panels;                      /* of queries that are there, and what belongs to them: */
    float lse[GROUP * PANEL], delta[GROUP * PANEL];
    struct sight sight[GROUP];
};

static size_t backward_bytes(const struct plan *p)
{
    size_t all = p->keys * p->widths, some = GROUP * p->widths;
    return (3 * all + 4 * some + 4 * GROUP + GROUP * GROUP) * p->step +
           (2 * all + some + 5) * SUMS * sizeof(float);
}

static struct backward backward_at(const struct plan *p, char *at)
{
    size_t all = p->keys * p->widths * p->step, some = GROUP * p->widths * p->step;
    struct backward w = {.keys = at};
    w.keys_turned = w.keys + all;
    w.values = w.keys_turned + all;
    w.queries = w.values + all;
    w.dout = w.queries + some;
    w.queries_turned = w.dout + some;
    w.dout_turned = w.queries_turned + some;
    w.odds = w.dout_turned + some;
    w.dscores = w.odds + 2 * GROUP * p->step;
    w.dscores_right = w.dscores + 2 * GROUP * p->step;
    w.dkeys = (float *)(w.dscores_right + GROUP * GROUP * p->step);
    w.dvalues = w.dkeys + p->keys * p->widths * SUMS;
    w.dqueries = w.dvalues + p->keys * p->widths * SUMS;
    w.scores = w.dqueries + GROUP * p->widths * SUMS;
    w.dodds = w.scores + 3 * SUMS;
    return w;
}

/* Where a row of out and dout begins. */
static size_t out_at(const struct attention *a, size_t b, size_t h, size_t t)
{
    return ((b * (size_t)a->T + t) * (size_t)a->H + h) * (size_t)a->K;
}

/* delta = dout . out of a row. */
static float delta_of(const struct attention *a, const struct attention_bwd *io, size_t at)
{
    enum { PIECE = 256 };
    float sum = 0, x[PIECE], y[PIECE];
    for (size_t k = 0; k < (size_t)a->K; k += PIECE) {
        size_t count = least(PIECE, (size_t)a->K - k);
        vector_load(io->out_BTHK, at + k, a->dtype, count, x);
        vector_load(io->dout_BTHK, at + k, a->dtype, count, y);
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < count; i++) sum += x[i] * y[i];
    }
    return sum;
}

/* What GROUP panels of queries see, from query `first`; whether that is any key. */
static bool look_around(const struct attention *a, const struct attention_bwd *io,
                        struct backward *w, size_t b, size_t first)
{
    bool some = false;
    w->panels = panels_of(least(GROUP * PANEL, (size_t)a->T - first));
    for (size_t j = 0; j < w->panels; j++) {
        look(a, io->start_BT, io->end_BT, b, first + j * PANEL, &w->sight[j]);
        some = some || w->sight[j].some_begin < w->sight[j].some_end;
    }
    return some;
}

/* GROUP panels of queries of head h, from query `first`, and what belongs to them. */
static void take_queries(const struct plan *p, const struct attention_bwd *io, struct backward *w,
                         size_t b, size_t h, size_t first)
{
    const struct attention *a = p->a;
    size_t T = (size_t)a->T, count = least(GROUP * PANEL, T - first);
    size_t panels = w->panels, split = panels * p->step;
    size_t q_at = (b * T + first) * a->q_stride + h * (size_t)a->K;
    size_t o_at = out_at(a, b, h, first), o_stride = (size_t)a->H * (size_t)a->K;
    for (int across = 0; across < 2 && !p->tiled; across++) {
        struct lines q = rows(a, io->q_BTHK, q_at, a->q_stride, count, across);
        struct lines d = rows(a, io->dout_BTHK, o_at, o_stride, count, across);
        size_t lines = across ? p->widths : panels;
        KERNEL(panel_pack)(&q, p->right, 0, lines, across ? w->queries_turned : w->queries);
        KERNEL(panel_pack)(&d, p->right, 0, lines, across ? w->dout_turned : w->dout);
    }
    for (size_t j = 0; p->tiled && j < panels; j++) {
        size_t to = j * p->widths * p->step, skip = j * PANEL;
        struct attention_rows q = rows_of(p, io->q_BTHK, q_at, a->q_stride, count, skip);
        struct attention_rows d = rows_of(p, io->dout_BTHK, o_at, o_stride, count, skip);
        KERNEL(attention_pack_right)(&q, w->queries + to, p->step);
        KERNEL(attention_pack_right)(&d, w->dout + to, p->step);
        KERNEL(attention_pack_split)(&q, w->queries_turned + j * p->step, split);
        KERNEL(attention_pack_split)(&d, w->dout_turned + j * p->step, split);
    }
    for (size_t i = 0; i < panels * PANEL; i++) {
        bool there = i < count;
        float lse = there ? io->lse_BHT[(b * (size_t)a->H + h) * T + first + i] : 0;
        w->lse[i] = lse == -INFINITY ? 0 : lse; /* of a query without keys: any number */
        w->delta[i] = there ? delta_of(a, io, out_at(a, b, h, first + i)) : 0;
    }
    memset(w->dqueries, 0, GROUP * p->widths * SUMS * sizeof *w->dqueries);
}

/* p = exp(scale s - lse), ds = p (dp - delta) scale, in place. */
static inline void soften_backward(const struct plan *p, const struct backward *w, size_t j,
                                   enum dtype dtype)
{
    const float scale = p->a->scale, *lse = w->lse + j * PANEL, *delta = w->delta + j * PANEL;
    for (size_t k = 0; k < PANEL; k++) {
        float *s = w->scores + k * PANEL, *d = w->dodds + k * PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            s[i] = vector_exp_for(dtype, s[i] * scale - lse[i]);
            d[i] = s[i] * (d[i] - delta[i]) * scale;
        }
    }
}

/* One panel of keys meets one of queries, of which it sees some: odds and their gradients. */
static void meet_backward(const struct plan *p, const struct backward *w, size_t key, size_t i,
                          size_t j)
{
    size_t left = (key + i) * p->widths * p->step, right = j * p->widths * p->step;
    KERNEL(panel_multiply)
    (p->kind, p->widths, panel_packed(p->kind, w->keys + left), w->queries + right, w->scores,
     false);
    KERNEL(panel_multiply)
    (p->kind, p->widths, panel_packed(p->kind, w->values + left), w->dout + right, w->dodds, false);
    mask(&w->sight[j], key + i, w->scores);
    if (p->a->dtype == F32)
        soften_backward(p, w, j, F32);
    else
        soften_backward(p, w, j, BF16);
    to_right(p->kind, w->dodds, w->dscores_right + (j * GROUP + i) * p->step);
    to_left(p->kind, w->scores, w->odds + j * p->step);
    to_left(p->kind, w->dodds, w->dscores + j * p->step);
}

/* Of a row of panels the first that is seen, and how many from there to the last. */
struct run {
    size_t first, count;
};

static struct run queries_that_see(const struct backward *w, size_t key)
{
    struct run r = {0};
    while (r.first < w->panels && !is_seen(&w->sight[r.first], key)) r.first++;
    for (size_t j = r.first; j < w->panels; j++)
        if (is_seen(&w->sight[j], key)) r.count = j + 1 - r.first;
    return r;
}

/* dv += p^T do, dk += ds^T q of one panel of keys, over the queries that see it. */
static void add_to_keys(const struct plan *p, const struct backward *w, size_t key, struct run seen)
{
    size_t skip = seen.first * p->step;
    for (size_t n = 0; n < p->widths; n++) {
        size_t to = (key * p->widths + n) * SUMS, right = n * w->panels * p->step + skip;
        KERNEL(panel_multiply)
        (p->kind, seen.count, panel_packed(p->kind, w->odds + skip), w->dout_turned + right,
         w->dvalues + to, true);
        KERNEL(panel_multiply)
        (p->kind, seen.count, panel_packed(p->kind, w->dscores + skip), w->queries_turned + right,
         w->dkeys + to, true);
    }
}

/* dq^T += k^T ds of each panel of queries, over those of `count` panels of keys that it sees. */
static void add_to_queries(const struct plan *p, const struct backward *w, size_t key, size_t count)
{
    for (size_t j = 0; j < w->panels; j++) {
        struct run seen = {0};
        while (seen.first < count && !is_seen(&w->sight[j], key + seen.first)) seen.first++;
        while (seen.first + seen.count < count &&
               is_seen(&w->sight[j], key + seen.first + seen.count))
            seen.count++;
        if (!seen.count) continue;
        const char *right = w->dscores_right + (j * GROUP + seen.first) * p->step;
        for (size_t n = 0; n < p->widths; n++) {
            const char *left = w->keys_turned + (n * p->keys + key + seen.first) * p->step;
            KERNEL(panel_multiply)
            (p->kind, seen.count, panel_packed(p->kind, left), right,
             w->dqueries + (j * p->widths + n) * SUMS, true);
        }
    }
}

/* All panels of keys meet the panels of queries that see them. */
static void meet_keys(const struct plan *p, const struct backward *w)
{
    for (size_t key = 0; key < p->keys; key += GROUP) {
        size_t count = least(GROUP, p->keys - key), met = 0;
        for (size_t i = 0; i < count; i++) {
            struct run seen = queries_that_see(w, key + i);
            for (size_t j = 0; j < seen.count; j++) meet_backward(p, w, key, i, seen.first + j);
            if (seen.count) add_to_keys(p, w, key + i, seen);
            met += seen.count;
        }
        if (met) add_to_queries(p, w, key, count);
    }
}

/* GROUP panels of queries of head h pass over all keys that they see. */
static void queries_backward(const struct plan *p, const struct attention_bwd *io,
                             struct backward *w, size_t b, size_t h, size_t first)
{
    const struct attention *a = p->a;
    size_t T = (size_t)a->T, H = (size_t)a->H, K = (size_t)a->K;
    bool part = a->keys != ALL_KEYS, more = a->keys == MORE_KEYS;
    if (!look_around(a, io, w, b, first) && more) return;
    take_queries(p, io, w, b, h, first);
    if (p->tiled) KERNEL(attention_back)
    (&(struct back){.widths = p->widths,
                    .keys = p->keys,
                    .panels = w->panels,
                    .left = w->keys,
                    .left_turned = w->keys_turned,
                    .values = w->values,
                    .queries = w->queries,
                    .dout = w->dout,
                    .queries_split = w->queries_turned,
                    .dout_split = w->dout_turned,
                    .odds = w->odds,
                    .dscores = w->dscores,
                    .dscores_right = w->dscores_right,
                    .dkeys = w->dkeys,
                    .dvalues = w->dvalues,
                    .dqueries = w->dqueries,
                    .scores = w->scores,
                    .dodds = w->dodds,
                    .scale = a->scale,
                    .lse = w->lse,
                    .delta = w->delta},
     w->sight);
    else meet_keys(p, w);
    float ones[PANEL], scale[PANEL];
    for (size_t i = 0; i < PANEL; i++) ones[i] = 1, scale[i] = p->tiled ? a->scale : 1;
    for (size_t j = 0; j < w->panels; j++) {
        size_t t = first + j * PANEL;
        struct rows_put to = {.x = io->dq_BTHK,
                              .at = part ? out_at(a, b, h, t) : (b * T + t) * a->q_stride + h * K,
                              .stride = part ? H * K : a->q_stride,
                              .dtype = part ? F32 : a->dtype,
                              .factor = scale,
                              .kept = more ? ones : NULL};
        put_turned(p, w->dqueries + j * p->widths * SUMS, least(PANEL, T - t), &to);
    }
}

/* [keys][widths] sums, times a factor, to rows of keys. */
static void put_keys(const struct plan *p, float *sums, float factor, void *x, size_t at)
{
    size_t S = (size_t)p->a->S, K = (size_t)p->a->K;
    for (size_t i = 0; factor != 1 && i < p->keys * p->widths * SUMS; i++) sums[i] *= factor;
    for (size_t s = 0; s < S; s++)
        for (size_t n = 0; n < p->widths; n++)
            vector_store(x, at + s * p->a->kv_stride + n * PANEL, p->a->keys ? F32 : p->a->dtype,
                         least(PANEL, K - n * PANEL),
                         sums + (s / PANEL * p->widths + n) * SUMS + s % PANEL * PANEL);
}

/* Everything of one key/value head of one row. */
static void head_backward(const struct plan *p, const struct attention_bwd *io, size_t b, size_t g,
                          char *buffers)
{
    const struct attention *a = p->a;
    size_t S = (size_t)a->S, at = b * S * a->kv_stride + g * (size_t)a->K;
    struct backward w = backward_at(p, buffers);
    struct lines turned = rows(a, io->k_BSGK, at, a->kv_stride, S, true);
    KERNEL(panel_pack)(&turned, p->left, 0, p->widths, w.keys_turned);
    pack_keys(p, io->k_BSGK, at, w.keys);
    pack_keys(p, io->v_BSGK, at, w.values);
    memset(w.dkeys, 0, 2 * p->keys * p->widths * SUMS * sizeof *w.dkeys); /* and dvalues */
    for (size_t e = 0; e < heads_each(a); e++)
        for (size_t first = 0; first < (size_t)a->T; first += GROUP * PANEL)
            queries_backward(p, io, &w, b, g * heads_each(a) + e, first);
    put_keys(p, w.dkeys, p->tiled ? a->scale : 1, io->dk_BSGK, at);
    put_keys(p, w.dvalues, 1, io->dv_BSGK, at);
}

enum status KERNEL(attention_backward)(const struct attention *a, const struct attention_bwd *io,
                                       struct queue *on)
{
    struct plan p = plan_of(a);
    size_t each = backward_bytes(&p), mark = arena_mark(&on->scratch);
    char *buffers = arena_take(&on->scratch, (size_t)on->num_threads, each);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    long tasks = (long)a->B * a->G;
#pragma omp parallel num_threads(on->num_threads)
    {
        tiles_open();
#pragma omp for schedule(dynamic)
        for (long task = 0; task < tasks; task++)
            head_backward(&p, io, (size_t)(task / a->G), (size_t)(task % a->G),
                          buffers + (size_t)omp_get_thread_num() * each);
        tiles_close();
    }
    return STATUS_OK;
}
