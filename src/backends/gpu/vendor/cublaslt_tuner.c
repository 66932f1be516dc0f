// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "ops/float8.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

enum {
    SECONDS = 10, /* in all */
    ROUNDS = 5,
    PIECE = 1 << 18, /* words that operands are filled with, again and again */
    WORD_DIGITS = 16,
};
static const double GAIN = 0.98; /* of the first one's time: a smaller gain may be chance */

struct tuner {
    struct tuning file;
    struct text library, device;
    int timed, found, left; /* products, since it was told */
    double seconds;         /* that timing took in all */
};

struct tuner *cublaslt_tuner_open(const struct queue *on, const char *path)
{
    char name[256] = "";
    struct tuner *t = heap(sizeof *t);
    (void)gpu_device_name(name, sizeof name, ((const struct gpu_queue *)on)->device);
    text_adds(&t->device, name);
    tuning_open(&t->file, path);
    return t;
}

void cublaslt_tuner_tell(struct tuner *t)
{
    if (t->timed + t->found + t->left == 0) return;
    bool kept = !tuning_save(&t->file);
    log_line(LOG_INFO, "device.tune_gemm: %d product%s timed in %.1f s, %d found in %s", t->timed,
             t->timed == 1 ? "" : "s", t->seconds, t->found, t->file.path);
    if (t->left) log_line(LOG_INFO, "device.tune_gemm: %d more are left to later runs", t->left);
    if (!kept) log_line(LOG_WARN, "device.tune_gemm: not kept: %s", status_message());
    t->timed = t->found = t->left = 0;
}

void cublaslt_tuner_close(struct tuner *t)
{
    if (!t) return;
    cublaslt_tuner_tell(t);
    tuning_close(&t->file);
    text_release(&t->library), text_release(&t->device);
    free(t);
}

/* --- in the file ---------------------------------------------------------------------------- */

/* An algorithm is a few words that the same version of the library knows. */
static void key_of(struct tuner *t, const struct gemm *g, struct text *key)
{
    static const char *const numbers[GEMM_NUMBERS] = {"", "", " E4M3", " E5M2"};
    struct tuned_product p = {.M = g->M,
                              .N = g->N,
                              .K = g->K,
                              .transpose_a = g->transpose_a,
                              .transpose_b = g->transpose_b,
                              .accumulate = g->accumulate,
                              .dtype = g->a == GEMM_F32 ? F32 : BF16,
                              .out = g->out};
    text_clear(&t->library);
    text_addf(&t->library, "cuda cuBLASLt %zu%s%s%s", cublasLtGetVersion(), numbers[g->a],
              numbers[g->b], g->scaled ? " scaled" : "");
    tuning_key(key, &(struct tuned_device){t->library.data, t->device.data, 1}, &p);
}

static void write_algorithm(const cublasLtMatmulAlgo_t *a, struct text *to)
{
    for (size_t i = 0; i < sizeof a->data / sizeof *a->data; i++)
        text_addf(to, "%016llx", (unsigned long long)a->data[i]);
}

static bool read_algorithm(const char *text, cublasLtMatmulAlgo_t *a)
{
    size_t words = sizeof a->data / sizeof *a->data;
    if (strlen(text) != words * WORD_DIGITS || strspn(text, "0123456789abcdef") != strlen(text))
        return false;
    for (size_t i = 0; i < words; i++) {
        char word[WORD_DIGITS + 1] = "";
        memcpy(word, text + i * WORD_DIGITS, WORD_DIGITS);
        a->data[i] = strtoull(word, NULL, 16);
    }
    return true;
}

/* What the file says, where this library and device can do it. */
static bool is_kept(const struct tuner *t, const char *key, const struct gemms *s,
                    struct prepared *p)
{
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t is;
    const char *way = tuning_find(&t->file, key);
    if (!way || !read_algorithm(way, &algorithm)) return false;
    if (cublasLtMatmulAlgoCheck(s->library, p->product, p->first, p->second, p->result, p->result,
                                &algorithm, &is) ||
        is.workspaceSize > WORKSPACE_MOST)
        return false;
    p->algorithm = algorithm, p->workspace = is.workspaceSize;
    return true;
}

/* --- timing --------------------------------------------------------------------------------- */

struct trial {
    struct gpu_queue on; /* the caller's stream, with scratch of its own */
    struct arena memory;
    gpu_event begin, end;
    void *a, *b, *c, *workspace;
    struct float8_scale *scale;
    uint32_t *piece;
};

static size_t number_bytes(enum gemm_number x)
{
    return x == GEMM_F32 ? 4 : x == GEMM_BF16 ? 2 : 1;
}

static size_t bytes_a(const struct gemm *g)
{
    return (size_t)g->M * (size_t)g->K * number_bytes(g->a);
}
static size_t bytes_b(const struct gemm *g)
{
    return (size_t)g->K * (size_t)g->N * number_bytes(g->b);
}

static void take_operands(struct trial *t, const struct gemm *g, size_t workspace)
{
    t->a = arena_take(&t->memory, bytes_a(g), 1);
    t->b = arena_take(&t->memory, bytes_b(g), 1);
    t->c = arena_take(&t->memory, (size_t)g->M * (size_t)g->N, dtype_bytes(g->out));
    t->workspace = arena_take(&t->memory, workspace + WORKSPACE_ALIGN, 1);
    t->scale = arena_take(&t->memory, 1, sizeof *t->scale);
}

/* Of sizes between a half and two, and of either sign: to multiply zeros takes less power, and so
 * less time. */
static enum status fill(struct trial *t, void *to, size_t bytes, enum gemm_number x)
{
    static const struct {
        uint32_t kept, set;
    } bits[GEMM_NUMBERS] = {[GEMM_F32] = {0x80FFFFFFu, 0x3F000000u},
                            [GEMM_BF16] = {0x80FF80FFu, 0x3F003F00u},
                            [GEMM_E4M3] = {0x8F8F8F8Fu, 0x30303030u},
                            [GEMM_E5M2] = {0x87878787u, 0x38383838u}};
    size_t all = PIECE * sizeof *t->piece, first = bytes < all ? bytes : all;
    for (uint32_t i = 0; i * sizeof(struct rng_block) < first; i++) {
        struct rng_block random = rng_philox(0, i, (uint32_t)x, 0, 0);
        for (int k = 0; k < 4; k++)
            t->piece[4 * i + (uint32_t)k] = (random.bits[k] & bits[x].kept) | bits[x].set;
    }
    for (size_t at = 0; at < bytes; at += all)
        TRY(queue_copy(&t->on.base, (char *)to + at, t->piece,
                       bytes - at < all ? bytes - at : all));
    return STATUS_OK;
}

static enum status open_trial(struct trial *t, const struct gemm *g, size_t workspace,
                              const struct queue *on)
{
    const struct float8_scale one = {1, 1};
    t->on = *(const struct gpu_queue *)on;
    t->on.base.measuring = false, t->on.base.trace = NULL;
    t->on.base.scratch = (struct arena){0};
    take_operands(t, g, workspace);
    size_t bytes = t->memory.used;
    TRY(arena_init(&t->memory, bytes, queue_memory(on)));
    TRY(arena_init(&t->on.base.scratch, ARENA_ALIGN, queue_memory(on)));
    take_operands(t, g, workspace);
    t->workspace =
        (char *)t->workspace + WORKSPACE_ALIGN - (uintptr_t)t->workspace % WORKSPACE_ALIGN;
    t->piece = heap(PIECE * sizeof *t->piece);
    TRY(fill(t, t->a, bytes_a(g), g->a));
    TRY(fill(t, t->b, bytes_b(g), g->b));
    TRY(queue_copy(&t->on.base, t->scale, &one, sizeof one));
    GPU_TRY(gpuEventCreate(&t->begin));
    GPU_TRY(gpuEventCreate(&t->end));
    return STATUS_OK;
}

static void close_trial(struct trial *t)
{
    if (t->begin) (void)gpuEventDestroy(t->begin);
    if (t->end) (void)gpuEventDestroy(t->end);
    arena_release(&t->on.base.scratch);
    arena_release(&t->memory);
    free(t->piece);
}

static enum status time_algorithm(struct trial *t, const struct gemms *s, const struct prepared *p,
                                  const cublasLtMatmulHeuristicResult_t *r, float *ms)
{
    struct gemm_io io = {t->a, t->b, t->c, t->c, t->scale, t->scale};
    GPU_TRY(gpuEventRecord(t->begin, t->on.stream));
    TRY(cublaslt_run(s, p, &r->algo, &io, t->workspace, r->workspaceSize, &t->on.base));
    GPU_TRY(gpuEventRecord(t->end, t->on.stream));
    GPU_TRY(gpuEventSynchronize(t->end));
    GPU_TRY(gpuEventElapsedTime(ms, t->begin, t->end));
    return STATUS_OK;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* *best: which of `count`.  The first round is for the caches and the clock; an algorithm is judged
 * by the median of the others, and one that fails is out.  To be better than the first of them
 * takes a GAIN. */
static enum status find_fastest(struct trial *t, const struct gemms *s, const struct prepared *p,
                                const cublasLtMatmulHeuristicResult_t *proposed, int count,
                                int *best)
{
    float ms[MOST_ALGORITHMS][ROUNDS + 1], least = 0;
    bool out[MOST_ALGORITHMS] = {false};
    for (int round = 0; round <= ROUNDS; round++)
        for (int i = 0; i < count; i++)
            if (!out[i]) out[i] = time_algorithm(t, s, p, &proposed[i], &ms[i][round]);
    enum { MEDIAN = 1 + ROUNDS / 2 };
    *best = count;
    for (int i = 0; i < count; i++) {
        if (out[i]) continue;
        qsort(&ms[i][1], ROUNDS, sizeof ms[i][1], by_value);
        if (*best < count && !(ms[i][MEDIAN] < least)) continue;
        least = ms[i][MEDIAN] * (*best == count ? (float)GAIN : 1), *best = i;
    }
    if (*best == count) FAIL(DEVICE, "all of cuBLASLt's algorithms fail: %s", status_message());
    return STATUS_OK;
}

void cublaslt_tuner_choose(struct tuner *t, const struct gemms *s, struct prepared *p,
                           const cublasLtMatmulHeuristicResult_t *proposed, int count,
                           struct queue *on)
{
    struct text key = {0}, way = {0};
    struct trial trial = {0};
    double begin = clock_monotonic_s();
    int best = 0;
    size_t workspace = 0;
    for (int i = 0; i < count; i++)
        if (proposed[i].workspaceSize > workspace) workspace = proposed[i].workspaceSize;
    key_of(t, &p->what, &key);
    if (is_kept(t, key.data, s, p)) {
        t->found++;
    } else if (t->seconds < SECONDS && !open_trial(&trial, &p->what, workspace, on) &&
               !find_fastest(&trial, s, p, proposed, count, &best)) {
        p->algorithm = proposed[best].algo, p->workspace = proposed[best].workspaceSize;
        write_algorithm(&p->algorithm, &way);
        tuning_put(&t->file, key.data, way.data);
        t->timed++;
    } else {
        t->left++;
    }
    close_trial(&trial);
    t->seconds += clock_monotonic_s() - begin;
    text_release(&key), text_release(&way);
}
