/* gemm.h with hipBLASLt: descriptors and the first algorithm of its heuristics are kept per shape.
 *
 * rocBLAS   computes shapes for which hipBLASLt has no algorithm.
 * Scaled    FP8 values are kept as bf16, and their scales are in device memory, where only some
 *           versions read factors: the library multiplies chunks of rows to f32 in scratch, and a
 *           kernel of ours scales, adds and rounds once.
 * Otherwise our own kernels compute what neither library can: operands that are not aligned to 16
 *           bytes, since hipBLASLt's preferences have no alignment, and what no sizing pass has
 *           seen if no scratch is left. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/hipblaslt.h"

#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/column_major.h"
#include "backends/gpu/vendor/rocblas_gemm.h"
#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MIN_VERSION = 600,        /* 0.6.0; earlier ones have other values for types */
    MIN_ALIGNMENT = 16,       /* bytes, of operands and workspace */
    MAX_WORKSPACE = 80 << 20, /* bytes; Stream-K on an MI300X needs 76 MiB */
    MIN_WORKSPACE = 256,      /* of rocBLAS, which uses multiples of it */
#if !defined(HIPBLASLT_CHUNK) /* tests: smaller */
#define HIPBLASLT_CHUNK (256 << 20)
#endif
    CHUNK_BYTES = HIPBLASLT_CHUNK, /* of a scaled GEMM's f32 product, at most */
    CHUNK_ROWS = 256,              /* all but the last one have a multiple of these */
};

/* One GEMM shape. */
struct hipblaslt_matmul {
    struct gemm gemm;    /* not scaled */
    int leading;         /* leading dimension of A as stored */
    hipblaslt_desc desc; /* NULL: no algorithm */
    bool by_rocblas;     /* it is used instead; false: our own kernels compute it */
    hipblaslt_layout first, second, result;
    struct hipblaslt_algorithm algorithm;
    size_t workspace; /* bytes */
    bool has_run;
};

struct hipblaslt {
    hipblaslt_handle handle;          /* NULL: not installed */
    struct hipblaslt_matmul *matmuls; /* owned */
    size_t count;
    struct rocblas_gemm *rocblas; /* NULL: not opened */
    struct failure no_rocblas;    /* why it cannot be opened */
    bool warned;                  /* that our own kernels are used */
};

/* Fails with DEVICE and the library's status. */
#define HIPBLASLT_TRY(call)                                                                        \
    do {                                                                                           \
        enum hipblaslt_status status_ = (call);                                                    \
        if (status_) FAIL(DEVICE, "hipBLASLt: %s: status %d", #call, (int)status_);                \
    } while (0)

static enum status open_handle(hipblaslt_handle *out, int *version)
{
    TRY(hipblaslt_load());
    *version = 0;
    enum hipblaslt_status status = hipblasLtCreate(out);
    if (status) FAIL(UNSUPPORTED, "hipBLASLt cannot be opened: status %d", (int)status);
    (void)hipblasLtGetVersion(*out, version);
    if (*version >= MIN_VERSION) return STATUS_OK;
    hipblasLtDestroy(*out);
    FAIL(UNSUPPORTED, "hipBLASLt 0.%d is too old: 0.6 (ROCm 6.0) or later is required",
         *version / 100);
}

static enum status open_rocblas(struct hipblaslt *h, struct queue *queue)
{
    TRY(status_restore(&h->no_rocblas));
    enum status st = h->rocblas ? STATUS_OK : rocblas_gemm_open(&h->rocblas, queue);
    if (st) status_save(&h->no_rocblas, st);
    return st;
}

static struct hipblaslt *open_library(struct queue *queue)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    struct hipblaslt *h = q->gemm;
    int version;
    if (h) return h;
    h = q->gemm = heap(sizeof *h);
    enum status st = open_handle(&h->handle, &version);
    if (st) {
        struct failure why = {0};
        status_save(&why, st);
        h->handle = NULL;
        log_line(LOG_WARN, "matrix multiplications use %s: %s",
                 open_rocblas(h, queue) ? "our own kernels, which are slower" : "rocBLAS",
                 why.message);
    }
    return h;
}

static void release_matmul(struct hipblaslt_matmul *m)
{
    if (m->desc) hipblasLtMatmulDescDestroy(m->desc);
    if (m->first) hipblasLtMatrixLayoutDestroy(m->first);
    if (m->second) hipblasLtMatrixLayoutDestroy(m->second);
    if (m->result) hipblasLtMatrixLayoutDestroy(m->result);
    m->desc = NULL, m->first = m->second = m->result = NULL;
}

static enum status create_layout(hipblaslt_layout *out, bool is_f32,
                                 const struct column_major_matrix *m, int leading)
{
    enum hipblaslt_type type = is_f32 ? HIPBLASLT_R_32F : HIPBLASLT_R_16BF;
    HIPBLASLT_TRY(
        hipblasLtMatrixLayoutCreate(out, type, (uint64_t)m->rows, (uint64_t)m->columns, leading));
    return STATUS_OK;
}

static enum status create_descriptors(struct hipblaslt_matmul *m)
{
    const struct gemm *g = &m->gemm;
    struct column_major c = column_major_gemm(g);
    int32_t first = c.first.transposed ? HIPBLASLT_OP_T : HIPBLASLT_OP_N;
    int32_t second = c.second.transposed ? HIPBLASLT_OP_T : HIPBLASLT_OP_N;
    HIPBLASLT_TRY(hipblasLtMatmulDescCreate(&m->desc, HIPBLASLT_COMPUTE_32F, HIPBLASLT_R_32F));
    HIPBLASLT_TRY(
        hipblasLtMatmulDescSetAttribute(m->desc, HIPBLASLT_DESC_TRANSA, &first, sizeof first));
    HIPBLASLT_TRY(
        hipblasLtMatmulDescSetAttribute(m->desc, HIPBLASLT_DESC_TRANSB, &second, sizeof second));
    TRY(create_layout(&m->first, g->b == GEMM_F32, &c.first, c.first.rows));
    TRY(create_layout(&m->second, g->a == GEMM_F32, &c.second, m->leading));
    TRY(create_layout(&m->result, g->out == F32, &c.result, c.result.rows));
    return STATUS_OK;
}

/* A GEMM that no sizing pass has seen can only use the scratch that is free now. */
static size_t workspace_limit(const struct queue *queue)
{
    size_t left = queue->scratch.size - queue->scratch.used;
    if (queue->sizing) return MAX_WORKSPACE;
    left = left > ARENA_ALIGN ? left - ARENA_ALIGN : 0;
    return left < MAX_WORKSPACE ? left : MAX_WORKSPACE;
}

/* *found false: the library has no algorithm for these types and sizes. */
static enum status query_heuristics(const struct hipblaslt *h, struct hipblaslt_matmul *m,
                                    uint64_t max_workspace, bool *found)
{
    struct hipblaslt_result result = {.state = HIPBLASLT_NOT_SUPPORTED};
    hipblaslt_pref pref = NULL;
    int count = 0;
    HIPBLASLT_TRY(hipblasLtMatmulPreferenceCreate(&pref));
    enum hipblaslt_status status = hipblasLtMatmulPreferenceSetAttribute(
        pref, HIPBLASLT_PREF_MAX_WORKSPACE_BYTES, &max_workspace, sizeof max_workspace);
    if (!status)
        status = hipblasLtMatmulAlgoGetHeuristic(h->handle, m->desc, m->first, m->second, m->result,
                                                 m->result, pref, 1, &result, &count);
    hipblasLtMatmulPreferenceDestroy(pref);
    *found = !status && count == 1 && !result.state && result.workspace <= max_workspace;
    if (status && status != HIPBLASLT_NOT_SUPPORTED && status != HIPBLASLT_INVALID_VALUE &&
        status != HIPBLASLT_INTERNAL_ERROR) /* its answer to data types without kernels */
        FAIL(DEVICE, "hipBLASLt: no heuristics: status %d", (int)status);
    m->algorithm = result.algorithm, m->workspace = result.workspace;
    return STATUS_OK;
}

/* rocBLAS, if it can, computes what hipBLASLt does not: versions lack whole combinations of data
 * types, such as bf16 to f32.  Otherwise the first GEMM is a warning: our own kernels are slower.
 * `why`: "hipBLASLt has no algorithm for". */
static void prepare_rocblas(struct hipblaslt *h, struct hipblaslt_matmul *m, struct queue *queue,
                            const char *why)
{
    const struct gemm *g = &m->gemm;
    size_t workspace = workspace_limit(queue);
    enum status st = open_rocblas(h, queue);
    if (!h->handle && st) return; /* open_library has warned */
    if (!st) st = rocblas_gemm_check(h->rocblas, g, queue);
    m->by_rocblas = !st && workspace >= MIN_WORKSPACE;
    m->workspace = m->by_rocblas ? workspace : 0;
    if (!h->handle && m->by_rocblas) return;
    log_line(h->warned || m->by_rocblas ? LOG_INFO : LOG_WARN,
             "GPU: %s a %d x %d x %d GEMM, %s to %s: using %s%s%s", why, g->M, g->N, g->K,
             g->a == GEMM_F32 ? "float32" : "bfloat16", dtype_name(g->out),
             m->by_rocblas ? "rocBLAS" : "our own kernels, which are slower", st ? ": " : "",
             st ? status_message() : "");
    h->warned = h->warned || !m->by_rocblas;
}

static enum status prepare_matmul(struct hipblaslt *h, struct hipblaslt_matmul *m,
                                  struct queue *queue)
{
    enum status st = STATUS_OK;
    bool found = false;
    if (!h->handle) {
        prepare_rocblas(h, m, queue, "rocBLAS does not compute");
        return STATUS_OK;
    }
    TRY_OUT(create_descriptors(m));
    TRY_OUT(query_heuristics(h, m, workspace_limit(queue), &found));
out:
    if (!found) release_matmul(m);
    if (!found && !st) prepare_rocblas(h, m, queue, "hipBLASLt has no algorithm for");
    return st;
}

/* *out: valid until the next call. */
static enum status find_matmul(struct hipblaslt *h, const struct gemm *g, int leading,
                               struct queue *queue, struct hipblaslt_matmul **out)
{
    struct hipblaslt_matmul m = {.gemm = *g, .leading = leading};
    for (size_t i = 0; i < h->count; i++)
        if (gemm_is_same(&h->matmuls[i].gemm, g) && h->matmuls[i].leading == leading) {
            *out = &h->matmuls[i];
            return STATUS_OK;
        }
    TRY(prepare_matmul(h, &m, queue));
    h->matmuls = heap_grow(h->matmuls, h->count + 1, sizeof *h->matmuls);
    h->matmuls[h->count] = m;
    *out = &h->matmuls[h->count++];
    return STATUS_OK;
}

/* UNSUPPORTED, with the reason: only rocBLAS, if it is installed, computes GEMMs. */
static enum status explain_rocblas_alone(const struct failure *no_hipblaslt)
{
    struct text name = {0};
    if (rocblas_gemm_library(&name)) TRY(status_restore(no_hipblaslt));
    FAILURE(UNSUPPORTED, "%s; %s computes all GEMMs", no_hipblaslt->message, name.data);
    text_release(&name);
    return STATUS_UNSUPPORTED;
}

enum status GPU_NAME(gemm_library)(struct text *out)
{
    hipblaslt_handle handle;
    struct failure why = {0};
    int version;
    if (status_save(&why, open_handle(&handle, &version))) return explain_rocblas_alone(&why);
    hipblasLtDestroy(handle);
    text_addf(out, "hipBLASLt %d.%d.%d, ", version / 100000, version / 100 % 1000, version % 100);
    if (rocblas_gemm_library(out)) text_adds(out, "no rocBLAS");
    return STATUS_OK;
}

/* The C interface cannot check whether an algorithm of a file is one of this version. */
void GPU_NAME(gemm_tune)(struct queue *queue, const struct tuning_files *files)
{
    (void)queue, (void)files;
}

void GPU_NAME(gemm_close)(struct queue *queue)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    struct hipblaslt *h = q->gemm;
    if (!h) return;
    for (size_t i = 0; i < h->count; i++) release_matmul(&h->matmuls[i]);
    free(h->matmuls);
    if (h->handle) hipblasLtDestroy(h->handle);
    rocblas_gemm_close(h->rocblas);
    free(h);
    q->gemm = NULL;
}

static bool is_aligned(const struct gemm_io *io)
{
    uintptr_t bits = (uintptr_t)io->a | (uintptr_t)io->b | (uintptr_t)io->c | (uintptr_t)io->d;
    return bits % MIN_ALIGNMENT == 0;
}

/* Whether scratch has room for a buffer or workspace, which may start up to ARENA_ALIGN later. */
static bool has_scratch(const struct queue *queue, size_t bytes)
{
    return queue->sizing || bytes + ARENA_ALIGN <= queue->scratch.size - queue->scratch.used;
}

static bool can_run(const struct hipblaslt_matmul *m, const struct queue *queue)
{
    return (m->desc || m->by_rocblas) && has_scratch(queue, m->workspace);
}

/* Some versions refuse at launch what their heuristics return: then nothing has run, and m has
 * another algorithm, or none.  A shape that has run before fails with the device. */
static enum status run_hipblaslt(struct hipblaslt *h, struct hipblaslt_matmul *m,
                                 const struct gemm_io *io, void *workspace, struct queue *queue)
{
    float alpha = 1, beta = m->gemm.accumulate ? 1 : 0;
    const void *d = io->d ? io->d : io->c;
    enum hipblaslt_status status = hipblasLtMatmul(
        h->handle, m->desc, &alpha, io->b, m->first, io->a, m->second, &beta, d, m->result, io->c,
        m->result, &m->algorithm, workspace, m->workspace, gpu_stream_of(queue));
    bool is_refused = status == HIPBLASLT_INVALID_VALUE || status == HIPBLASLT_NOT_SUPPORTED;
    m->has_run = m->has_run || !status;
    if (is_refused && !m->has_run) {
        char why[64];
        snprintf(why, sizeof why, "hipBLASLt refuses (status %d)", (int)status);
        (void)gpuGetLastError(); /* the next launch would report it */
        release_matmul(m);
        prepare_rocblas(h, m, queue, why);
    } else if (status) {
        FAIL(DEVICE, "hipBLASLt: hipblasLtMatmul: status %d", (int)status);
    }
    return STATUS_OK;
}

static enum status run_rocblas(struct hipblaslt *h, struct hipblaslt_matmul *m,
                               const struct gemm_io *io, void *workspace)
{
    struct rocblas_call call = {&m->gemm, io, m->leading, workspace, m->workspace};
    enum status st = rocblas_gemm_run(h->rocblas, &call);
    if (st && m->has_run) {
        struct failure why = {0};
        status_save(&why, st);
        FAIL(DEVICE, "%s", why.message);
    }
    if (st)
        log_line(LOG_WARN, "GPU: a %d x %d x %d GEMM uses our own kernels, which are slower: %s",
                 m->gemm.M, m->gemm.N, m->gemm.K, status_message());
    m->has_run = !st, m->by_rocblas = !st;
    return STATUS_OK;
}

/* *done false: neither library computes it. */
static enum status run(struct hipblaslt *h, struct hipblaslt_matmul *m, const struct gemm_io *io,
                       struct queue *queue, bool *done)
{
    size_t padding = queue->sizing ? ARENA_ALIGN : 0;
    for (*done = false; !*done && can_run(m, queue); *done = queue->sizing || m->has_run) {
        size_t mark = arena_mark(&queue->scratch);
        void *workspace = arena_alloc(&queue->scratch, m->workspace + padding, 1);
        arena_reset(&queue->scratch, mark);
        if (queue->sizing) continue;
        if (m->desc)
            TRY(run_hipblaslt(h, m, io, workspace, queue));
        else
            TRY(run_rocblas(h, m, io, workspace));
    }
    if (*done && !queue->sizing && queue->trace)
        GPU_TRY(gpuStreamSynchronize(gpu_stream_of(queue)));
    return STATUS_OK;
}

static int leading_of_a(const struct gemm *g) { return g->transpose_a ? g->M : g->K; }

/* *done false: neither library computes it, here and in gemm_in_chunks. */
static enum status gemm_at_once(struct hipblaslt *h, const struct gemm *g, const struct gemm_io *io,
                                struct queue *queue, bool *done)
{
    struct hipblaslt_matmul *m;
    TRY(find_matmul(h, g, leading_of_a(g), queue, &m));
    TRY(run(h, m, io, queue, done));
    return STATUS_OK;
}

/* Rows of a chunk, which depend on the sizes only, as then do the bits. */
static int chunk_rows(const struct gemm *g)
{
    size_t M = (size_t)g->M, most = CHUNK_BYTES / ((size_t)g->N * sizeof(float));
    most = most < CHUNK_ROWS ? CHUNK_ROWS : most / CHUNK_ROWS * CHUNK_ROWS;
    size_t chunks = (M + most - 1) / most, rows = (M + chunks - 1) / chunks;
    rows = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS * CHUNK_ROWS;
    return (int)(rows < M ? rows : M);
}

/* The product of a chunk that begins at this row. */
static enum status find_product(struct hipblaslt *h, const struct gemm *g, int begin,
                                struct queue *queue, struct hipblaslt_matmul **out)
{
    struct gemm product = *g;
    int rows = chunk_rows(g);
    product.M = rows < g->M - begin ? rows : g->M - begin;
    product.out = F32, product.scaled = product.accumulate = false;
    TRY(find_matmul(h, &product, leading_of_a(g), queue, out));
    return STATUS_OK;
}

static const void *advance(const void *x, size_t bytes)
{
    return x ? (const unsigned char *)x + bytes : NULL;
}

static struct gemm_io io_of_rows(const struct gemm *g, const struct gemm_io *io, int begin)
{
    size_t row = (size_t)begin, c = row * (size_t)g->N * dtype_bytes(g->out);
    struct gemm_io part = *io;
    part.a = advance(io->a, row * (g->transpose_a ? 1 : (size_t)g->K) * sizeof(bf16));
    part.c = (void *)(uintptr_t)advance(io->c, c), part.d = advance(io->d, c);
    return part;
}

/* Before the first chunk changes C, all must be known to run: D may be C. */
static enum status can_run_chunks(struct hipblaslt *h, const struct gemm *g, struct queue *queue,
                                  bool *can)
{
    int rows = chunk_rows(g), last = (g->M - 1) / rows * rows;
    size_t mark = arena_mark(&queue->scratch), sums = (size_t)rows * (size_t)g->N * sizeof(float);
    struct hipblaslt_matmul *m;
    *can = has_scratch(queue, sums);
    if (!*can) return STATUS_OK;
    (void)arena_alloc(&queue->scratch, sums, 1);
    for (int begin = 0; *can && begin <= last; begin += last ? last : 1) {
        TRY(find_product(h, g, begin, queue, &m));
        *can = can_run(m, queue);
    }
    arena_reset(&queue->scratch, mark);
    return STATUS_OK;
}

static enum status gemm_in_chunks(struct hipblaslt *h, const struct gemm *g,
                                  const struct gemm_io *io, struct queue *queue, bool *done)
{
    struct hipblaslt_matmul *m;
    int rows = chunk_rows(g);
    TRY(can_run_chunks(h, g, queue, done));
    for (int begin = 0; *done && begin < g->M; begin += rows) {
        struct gemm chunk = *g;
        struct gemm_io part = io_of_rows(g, io, begin), product = {.a = part.a, .b = part.b};
        size_t mark = arena_mark(&queue->scratch);
        TRY(find_product(h, g, begin, queue, &m));
        chunk.M = m->gemm.M;
        product.c = arena_alloc(&queue->scratch, (size_t)chunk.M * (size_t)chunk.N, sizeof(float));
        TRY(run(h, m, &product, queue, done));
        if (*done) TRY(GPU_NAME(gemm_scale)(&chunk, &part, product.c, queue));
        arena_reset(&queue->scratch, mark);
        if (!*done && begin) FAIL(DEVICE, "hipBLASLt: it multiplies only some rows of a matrix");
    }
    return STATUS_OK;
}

enum status GPU_NAME(gemm)(const struct gemm *g, const struct gemm_io *io, struct queue *queue)
{
    struct hipblaslt *h = open_library(queue);
    bool done = false;
    if (is_aligned(io)) TRY((g->scaled ? gemm_in_chunks : gemm_at_once)(h, g, io, queue, &done));
    if (!done) TRY(GPU_NAME(gemm_tiled)(g, io, queue));
    return STATUS_OK;
}
