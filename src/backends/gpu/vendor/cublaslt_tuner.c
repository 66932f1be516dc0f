// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "ops/float8.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_BUDGET_S = 10, /* of all GEMMs together */
    ROUNDS = 5,
    PATTERN_WORDS = 1 << 18, /* of random data, repeated to fill the operands */
    WORD_DIGITS = 16,
};
/* To replace the heuristics' first choice, a candidate must take less than this part of its time:
 * a smaller gain may be noise. */
static const double REPLACE_BELOW = 0.98;

struct cublaslt_tuner {
    struct tuning file, shipped;
    bool measures;
    double budget_s;
    struct text library, device;
    int timed, found, skipped; /* GEMMs since the last report */
    double seconds;            /* spent on timing */
};

static const char library_name[] = "cuda cuBLASLt ";

/* An algorithm is opaque data of a library's version: says so once if a file has this device's
 * GEMMs, but all of other versions. */
static void check_version(const struct cublaslt_tuner *t, const struct tuning *file)
{
    size_t others = 0, version, own = cublasLtGetVersion(), name = sizeof library_name - 1;
    struct text device = {0};
    text_addf(&device, ", %s, ", t->device.data);
    for (size_t i = 0; i < file->count; i++) {
        const char *key = file->entries[i].key;
        if (strncmp(key, library_name, name) != 0 || !strstr(key, device.data)) continue;
        version = strtoull(key + name, NULL, 10);
        if (version == own) others = 0;
        if (version == own) break;
        others = version;
    }
    if (others)
        log_line(LOG_INFO,
                 "GPU: %s has algorithms of cuBLASLt %zu for this GPU, not of %zu: not used",
                 file->path, others, own);
    text_release(&device);
}

struct cublaslt_tuner *cublaslt_tuner_open(const struct queue *queue,
                                           const struct tuning_files *files)
{
    char name[256] = "";
    struct cublaslt_tuner *t = heap(sizeof *t);
    t->measures = files->measures;
    t->budget_s = files->budget_s > 0 ? files->budget_s : DEFAULT_BUDGET_S;
    (void)gpu_device_name(name, sizeof name, ((const struct gpu_queue *)queue)->device);
    text_adds(&t->device, name);
    if (files->path) tuning_open(&t->file, files->path);
    if (files->shipped) tuning_open(&t->shipped, files->shipped);
    check_version(t, &t->file);
    check_version(t, &t->shipped);
    return t;
}

void cublaslt_tuner_report(struct cublaslt_tuner *t)
{
    if (t->timed + t->found + t->skipped == 0) return;
    bool saved = !t->measures || !tuning_save(&t->file);
    const char *from = t->file.path ? t->file.path : t->shipped.path;
    if (t->measures)
        log_line(LOG_INFO, "device.tune_gemm: timed %d GEMM%s in %.1f s, found %d in %s", t->timed,
                 t->timed == 1 ? "" : "s", t->seconds, t->found, from);
    else
        log_line(LOG_INFO, "GPU: %d of %d GEMMs use the algorithms of %s", t->found,
                 t->found + t->skipped, from);
    if (t->measures && t->skipped)
        log_line(LOG_INFO, "device.tune_gemm: left %d GEMMs to later runs", t->skipped);
    if (!saved) log_line(LOG_WARN, "device.tune_gemm: results not saved: %s", status_message());
    t->timed = t->found = t->skipped = 0;
}

void cublaslt_tuner_close(struct cublaslt_tuner *t)
{
    if (!t) return;
    cublaslt_tuner_report(t);
    tuning_close(&t->file), tuning_close(&t->shipped);
    text_release(&t->library), text_release(&t->device);
    free(t);
}

/* --- entries of the file --- */

static void make_key(struct cublaslt_tuner *t, const struct cublaslt_matmul *m, struct text *key)
{
    const struct gemm *g = &m->gemm;
    static const char *const types[GEMM_TYPE_COUNT] = {"", "", " E4M3", " E5M2"};
    struct tuned_matmul p = {.M = g->M,
                             .N = g->N,
                             .K = g->K,
                             .transpose_a = g->transpose_a,
                             .transpose_b = g->transpose_b,
                             .accumulate = g->accumulate,
                             .dtype = g->a == GEMM_F32 ? F32 : BF16,
                             .out = g->out};
    text_clear(&t->library);
    text_addf(&t->library, "%s%zu%s%s%s", library_name, cublasLtGetVersion(), types[g->a],
              types[g->b], g->scaled ? " scaled" : "");
    tuning_key(key, &(struct tuned_device){t->library.data, t->device.data, 1}, &p);
    if (m->alignment < CUBLASLT_MAX_ALIGNMENT)
        text_addf(key, ", aligned to %u bytes", m->alignment);
    if (m->multiprocessors) text_addf(key, ", on %d multiprocessors", m->multiprocessors);
}

static void format_algorithm(const cublasLtMatmulAlgo_t *a, struct text *to)
{
    for (size_t i = 0; i < sizeof a->data / sizeof *a->data; i++)
        text_addf(to, "%016llx", (unsigned long long)a->data[i]);
}

static bool parse_algorithm(const char *text, cublasLtMatmulAlgo_t *a)
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

/* A file that an earlier version of Llamero tuned may have algorithms with other reductions. */
static bool has_allowed_reduction(const cublasLtMatmulAlgo_t *a)
{
    uint32_t scheme;
    size_t written;
    return !cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                 sizeof scheme, &written) &&
           !(scheme & ~split_k_reductions);
}

/* Takes a file's algorithm if this library and device accept it, and heuristics may propose it. */
static bool load_algorithm(const struct tuning *file, const char *key, const struct cublaslt *c,
                           struct cublaslt_matmul *m, size_t max_workspace)
{
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t result;
    const char *entry = tuning_find(file, key);
    if (!entry || !parse_algorithm(entry, &algorithm)) return false;
    if (cublasLtMatmulAlgoCheck(c->handle, m->desc, m->first, m->second, m->result, m->result,
                                &algorithm, &result) ||
        result.workspaceSize > max_workspace || !has_allowed_reduction(&algorithm))
        return false;
    m->algorithm = algorithm, m->workspace = result.workspaceSize;
    return true;
}

/* --- timing --- */

struct cublaslt_trial {
    struct gpu_queue queue; /* the caller's stream, with scratch of its own */
    struct arena memory;
    gpu_event begin, end;
    void *a, *b, *c, *workspace;
    struct float8_scale *scale;
    uint32_t *pattern;
};

static size_t type_bytes(enum gemm_type x) { return x == GEMM_F32 ? 4 : x == GEMM_BF16 ? 2 : 1; }

static size_t bytes_of_a(const struct gemm *g)
{
    return (size_t)g->M * (size_t)g->K * type_bytes(g->a);
}
static size_t bytes_of_b(const struct gemm *g)
{
    return (size_t)g->K * (size_t)g->N * type_bytes(g->b);
}

static void alloc_operands(struct cublaslt_trial *t, const struct gemm *g, size_t workspace)
{
    t->a = arena_alloc(&t->memory, bytes_of_a(g), 1);
    t->b = arena_alloc(&t->memory, bytes_of_b(g), 1);
    t->c = arena_alloc(&t->memory, (size_t)g->M * (size_t)g->N, dtype_bytes(g->out));
    t->workspace = arena_alloc(&t->memory, workspace + CUBLASLT_WORKSPACE_ALIGN, 1);
    t->scale = arena_alloc(&t->memory, 1, sizeof *t->scale);
}

/* Random values of magnitude 0.5 to 2.  Multiplying zeros would draw less power and so run
 * faster. */
static enum status fill_random(struct cublaslt_trial *t, void *to, size_t bytes, enum gemm_type x)
{
    static const struct {
        uint32_t keep, set;
    } bits[GEMM_TYPE_COUNT] = {[GEMM_F32] = {0x80FFFFFFu, 0x3F000000u},
                               [GEMM_BF16] = {0x80FF80FFu, 0x3F003F00u},
                               [GEMM_E4M3] = {0x8F8F8F8Fu, 0x30303030u},
                               [GEMM_E5M2] = {0x87878787u, 0x38383838u}};
    size_t all = PATTERN_WORDS * sizeof *t->pattern, first = bytes < all ? bytes : all;
    for (uint32_t i = 0; i * sizeof(struct rng_block) < first; i++) {
        struct rng_block random = rng_philox(0, i, (uint32_t)x, 0, 0);
        for (int k = 0; k < 4; k++)
            t->pattern[4 * i + (uint32_t)k] = (random.bits[k] & bits[x].keep) | bits[x].set;
    }
    for (size_t at = 0; at < bytes; at += all)
        TRY(queue_copy(&t->queue.base, (char *)to + at, t->pattern,
                       bytes - at < all ? bytes - at : all));
    return STATUS_OK;
}

static enum status open_trial(struct cublaslt_trial *t, const struct gemm *g, size_t workspace,
                              const struct queue *queue)
{
    const struct float8_scale one = {1, 1};
    t->queue = *(const struct gpu_queue *)queue;
    t->queue.base.sizing = false, t->queue.base.trace = NULL;
    t->queue.base.scratch = (struct arena){0};
    alloc_operands(t, g, workspace);
    size_t bytes = t->memory.used;
    TRY(arena_init(&t->memory, bytes, queue_device_allocator(queue)));
    TRY(arena_init(&t->queue.base.scratch, ARENA_ALIGN, queue_device_allocator(queue)));
    alloc_operands(t, g, workspace);
    t->workspace = (char *)t->workspace + CUBLASLT_WORKSPACE_ALIGN -
                   (uintptr_t)t->workspace % CUBLASLT_WORKSPACE_ALIGN;
    t->pattern = heap(PATTERN_WORDS * sizeof *t->pattern);
    TRY(fill_random(t, t->a, bytes_of_a(g), g->a));
    TRY(fill_random(t, t->b, bytes_of_b(g), g->b));
    TRY(queue_copy(&t->queue.base, t->scale, &one, sizeof one));
    GPU_TRY(gpuEventCreate(&t->begin));
    GPU_TRY(gpuEventCreate(&t->end));
    return STATUS_OK;
}

static void close_trial(struct cublaslt_trial *t)
{
    if (t->begin) (void)gpuEventDestroy(t->begin);
    if (t->end) (void)gpuEventDestroy(t->end);
    arena_release(&t->queue.base.scratch);
    arena_release(&t->memory);
    free(t->pattern);
}

static enum status time_algorithm(struct cublaslt_trial *t, const struct cublaslt *c,
                                  const struct cublaslt_matmul *m,
                                  const cublasLtMatmulHeuristicResult_t *r, float *ms)
{
    struct gemm_io io = {t->a, t->b, t->c, t->c, t->scale, t->scale};
    struct cublaslt_call call = {m, &r->algo, &io, t->workspace, r->workspaceSize};
    GPU_TRY(gpuEventRecord(t->begin, t->queue.stream));
    TRY(cublaslt_run(c, &call, &t->queue.base));
    GPU_TRY(gpuEventRecord(t->end, t->queue.stream));
    GPU_TRY(gpuEventSynchronize(t->end));
    GPU_TRY(gpuEventElapsedTime(ms, t->begin, t->end));
    return STATUS_OK;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The first round is warm-up; the median of the others counts.  A candidate that fails is dropped,
 * and the first one is only replaced by one that beats REPLACE_BELOW of its time. */
static enum status find_fastest(struct cublaslt_trial *t, const struct cublaslt *c,
                                const struct cublaslt_matmul *m,
                                const struct cublaslt_candidates *candidates, int *best)
{
    float ms[CUBLASLT_MAX_CANDIDATES][ROUNDS + 1], least = 0;
    bool failed[CUBLASLT_MAX_CANDIDATES] = {false};
    int count = candidates->count;
    for (int round = 0; round <= ROUNDS; round++)
        for (int i = 0; i < count; i++)
            if (!failed[i])
                failed[i] = time_algorithm(t, c, m, &candidates->results[i], &ms[i][round]);
    enum { MEDIAN = 1 + ROUNDS / 2 };
    *best = count;
    for (int i = 0; i < count; i++) {
        if (failed[i]) continue;
        qsort(&ms[i][1], ROUNDS, sizeof ms[i][1], compare_floats);
        if (*best < count && !(ms[i][MEDIAN] < least)) continue;
        least = ms[i][MEDIAN] * (*best == count ? (float)REPLACE_BELOW : 1), *best = i;
    }
    if (*best == count) FAIL(DEVICE, "every cuBLASLt algorithm failed: %s", status_message());
    return STATUS_OK;
}

void cublaslt_tuner_choose(struct cublaslt_tuner *t, const struct cublaslt *c,
                           struct cublaslt_matmul *m, const struct cublaslt_candidates *candidates,
                           struct queue *queue)
{
    struct text key = {0}, entry = {0};
    struct cublaslt_trial trial = {0};
    double begin = clock_monotonic_s();
    int best = 0;
    size_t workspace = 0;
    const cublasLtMatmulHeuristicResult_t *results = candidates->results;
    for (int i = 0; i < candidates->count; i++)
        if (results[i].workspaceSize > workspace) workspace = results[i].workspaceSize;
    make_key(t, m, &key);
    /* Outside a sizing pass only the first candidate is known to fit the scratch that is free. */
    size_t most = queue->sizing ? CUBLASLT_MAX_WORKSPACE : m->workspace;
    bool measures = t->measures && queue->sizing && t->seconds < t->budget_s;
    if (load_algorithm(&t->file, key.data, c, m, most) ||
        load_algorithm(&t->shipped, key.data, c, m, most)) {
        t->found++;
    } else if (measures && !open_trial(&trial, &m->gemm, workspace, queue) &&
               !find_fastest(&trial, c, m, candidates, &best)) {
        m->algorithm = results[best].algo, m->workspace = results[best].workspaceSize;
        format_algorithm(&m->algorithm, &entry);
        tuning_set(&t->file, key.data, entry.data);
        t->timed++;
    } else {
        t->skipped++;
    }
    close_trial(&trial);
    t->seconds += clock_monotonic_s() - begin;
    text_release(&key), text_release(&entry);
}
