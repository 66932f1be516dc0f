// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/column_major.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/log.h"
#include "base/text.h"
#include "ops/float8.h"

#include <stdlib.h>

/* Bytes.  A sizing pass, which has no addresses, assumes it: every allocation of an arena has it,
 * so that only odd sizes have less. */
enum { MAX_ALIGNMENT = CUBLASLT_MAX_ALIGNMENT };

static const cudaDataType_t types[GEMM_TYPE_COUNT] = {[GEMM_F32] = CUDA_R_32F,
                                                      [GEMM_BF16] = CUDA_R_16BF,
                                                      [GEMM_E4M3] = CUDA_R_8F_E4M3,
                                                      [GEMM_E5M2] = CUDA_R_8F_E5M2};

static bool is_fp8(const struct gemm *g) { return g->a >= GEMM_E4M3; }

/* --- preparing a GEMM --- */

/* Without the library all GEMMs use our own kernels. */
static enum status open_library(struct queue *queue, struct cublaslt **out)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    *out = q->gemm;
    if (*out) return STATUS_OK;
    struct cublaslt *c = heap(sizeof *c);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (cublaslt_load())
        log_line(LOG_WARN,
                 "matrix multiplications use our own kernels, at about half the speed: %s",
                 status_message());
    else
        status = cublasLtCreate(&c->handle);
    if (status) {
        free(c);
        FAIL(DEVICE, "cannot create a cuBLASLt handle: %s", cublasLtGetStatusString(status));
    }
    *out = q->gemm = c;
    return STATUS_OK;
}

static void release_matmul(struct cublaslt_matmul *m)
{
    if (m->desc) cublasLtMatmulDescDestroy(m->desc);
    if (m->first) cublasLtMatrixLayoutDestroy(m->first);
    if (m->second) cublasLtMatrixLayoutDestroy(m->second);
    if (m->result) cublasLtMatrixLayoutDestroy(m->result);
    m->desc = NULL, m->first = m->second = m->result = NULL;
}

#define SET_ATTRIBUTE(desc, attribute, value)                                                      \
    CUBLASLT_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##attribute, &(value),  \
                                                sizeof(value)))

static enum status create_layout(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                 const struct column_major_matrix *m)
{
    CUBLASLT_TRY(
        cublasLtMatrixLayoutCreate(out, type, (uint64_t)m->rows, (uint64_t)m->columns, m->rows));
    return STATUS_OK;
}

static enum status set_scales(const struct cublaslt_matmul *m, const float *first,
                              const float *second)
{
    SET_ATTRIBUTE(m->desc, A_SCALE_POINTER, first);
    SET_ATTRIBUTE(m->desc, B_SCALE_POINTER, second);
    return STATUS_OK;
}

/* Stands for the scales of an FP8 GEMM, whose addresses are known when it runs, in the query of the
 * heuristics: those may depend on whether there are scales, but do not read them. */
static const float unknown_scale = 1;

/* cuBLASLt applies the scales of FP8 operands itself.  Where FP8 values are kept as bf16, alpha is
 * the product of the inverse scales, and the library reads it from device memory. */
static enum status create_descriptors(struct cublaslt_matmul *m)
{
    const struct gemm *g = &m->gemm;
    struct column_major c = column_major_gemm(g);
    cublasOperation_t first = c.first.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = c.second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t pointer_mode = CUBLASLT_POINTER_MODE_DEVICE;
    int8_t fast_accumulation = g->a == GEMM_E4M3 && g->b == GEMM_E4M3; /* forward only */
    CUBLASLT_TRY(cublasLtMatmulDescCreate(&m->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET_ATTRIBUTE(m->desc, TRANSA, first);
    SET_ATTRIBUTE(m->desc, TRANSB, second);
    if (is_fp8(g)) SET_ATTRIBUTE(m->desc, FAST_ACCUM, fast_accumulation);
    if (is_fp8(g) && g->scaled) TRY(set_scales(m, &unknown_scale, &unknown_scale));
    if (g->scaled && !is_fp8(g)) SET_ATTRIBUTE(m->desc, POINTER_MODE, pointer_mode);
    if (m->multiprocessors) SET_ATTRIBUTE(m->desc, SM_COUNT_TARGET, m->multiprocessors);
    TRY(create_layout(&m->first, types[g->b], &c.first));
    TRY(create_layout(&m->second, types[g->a], &c.second));
    TRY(create_layout(&m->result, g->out == F32 ? CUDA_R_32F : CUDA_R_16BF, &c.result));
    return STATUS_OK;
}

static enum status set_preferences(cublasLtMatmulPreference_t preference, uint64_t max_workspace,
                                   uint32_t alignment)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    CUBLASLT_TRY(cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &max_workspace, sizeof max_workspace));
    CUBLASLT_TRY(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &split_k_reductions, sizeof split_k_reductions));
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        CUBLASLT_TRY(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment,
                                                          sizeof alignment));
    return STATUS_OK;
}

/* Drops the candidates that failed or need too much workspace. */
static int filter(cublasLtMatmulHeuristicResult_t *results, int count, size_t max_workspace)
{
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= max_workspace)
            results[kept++] = results[i];
    return kept;
}

/* count 0: the library has no algorithm for these types and sizes. */
static enum status query_heuristics(const struct cublaslt *c, const struct cublaslt_matmul *m,
                                    size_t max_workspace, struct cublaslt_candidates *out)
{
    cublasLtMatmulPreference_t preference = NULL;
    enum status st = STATUS_OK;
    out->count = 0;
    if (cublasLtMatmulPreferenceCreate(&preference))
        FAIL(DEVICE, "cannot create cuBLASLt preferences: out of memory");
    TRY_OUT(set_preferences(preference, max_workspace, m->alignment));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        c->handle, m->desc, m->first, m->second, m->result, m->result, preference,
        CUBLASLT_MAX_CANDIDATES, out->results, &out->count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        out->count = 0;
    else if (status)
        FAIL_OUT(DEVICE, "cuBLASLt: no heuristics: %s", cublasLtGetStatusString(status));
    out->count = filter(out->results, out->count, max_workspace);
out:
    cublasLtMatmulPreferenceDestroy(preference);
    return st;
}

/* Scratch that a GEMM takes in addition to its workspace, at most: alignment and the factors. */
enum { EXTRA_SCRATCH = CUBLASLT_WORKSPACE_ALIGN + 2 * ARENA_ALIGN };

/* A GEMM that no sizing pass has seen can only use the scratch that is free now. */
static size_t workspace_limit(const struct queue *queue)
{
    size_t left = queue->scratch.size - queue->scratch.used;
    if (queue->sizing) return CUBLASLT_MAX_WORKSPACE;
    left = left > EXTRA_SCRATCH ? left - EXTRA_SCRATCH : 0;
    return left < CUBLASLT_MAX_WORKSPACE ? left : CUBLASLT_MAX_WORKSPACE;
}

/* The first GEMM is a warning, since our own kernels are slower. */
static void log_fallback(struct cublaslt *c, const struct cublaslt_matmul *m)
{
    static const char *const names[GEMM_TYPE_COUNT] = {"float32", "bfloat16", "E4M3", "E5M2"};
    const struct gemm *g = &m->gemm;
    log_line(c->warned ? LOG_INFO : LOG_WARN,
             "GPU: cuBLASLt has no algorithm for a %d x %d x %d GEMM aligned to %u bytes, %s to "
             "%s: using our own kernels, which are slower",
             g->M, g->N, g->K, m->alignment, names[g->a], dtype_name(g->out));
    c->warned = true;
}

static enum status prepare_matmul(struct cublaslt *c, struct cublaslt_matmul *m,
                                  struct queue *queue)
{
    struct cublaslt_candidates candidates = {.count = 0};
    enum status st = STATUS_OK;
    if (!c->handle) return STATUS_OK;
    TRY_OUT(create_descriptors(m));
    TRY_OUT(query_heuristics(c, m, workspace_limit(queue), &candidates));
    if (candidates.count) {
        m->algorithm = candidates.results[0].algo;
        m->workspace = candidates.results[0].workspaceSize;
        if (c->tuner) cublaslt_tuner_choose(c->tuner, c, m, &candidates, queue);
    } else {
        log_fallback(c, m);
    }
out:
    if (st || !candidates.count) release_matmul(m);
    return st;
}

static bool is_same_matmul(const struct cublaslt_matmul *x, const struct cublaslt_matmul *y)
{
    return x->alignment == y->alignment && x->multiprocessors == y->multiprocessors &&
           gemm_is_same(&x->gemm, &y->gemm);
}

static enum status find_matmul(const struct gemm *g, unsigned alignment, struct queue *queue,
                               struct cublaslt **library, const struct cublaslt_matmul **out)
{
    TRY(open_library(queue, library));
    struct cublaslt *c = *library;
    if (c->tuner && !queue->sizing) cublaslt_tuner_report(c->tuner);
    struct cublaslt_matmul m = {.gemm = *g, .alignment = alignment};
    m.multiprocessors = ((const struct gpu_queue *)queue)->gemm_multiprocessors;
    for (size_t i = 0; i < c->count; i++)
        if (is_same_matmul(&c->matmuls[i], &m)) {
            *out = &c->matmuls[i];
            return STATUS_OK;
        }
    TRY(prepare_matmul(c, &m, queue));
    c->matmuls = heap_grow(c->matmuls, c->count + 1, sizeof *c->matmuls);
    c->matmuls[c->count] = m;
    *out = &c->matmuls[c->count++];
    return STATUS_OK;
}

enum status GPU_NAME(gemm_library)(struct text *out)
{
    TRY(cublaslt_load());
    size_t version = cublasLtGetVersion();
    text_addf(out, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return STATUS_OK;
}

void GPU_NAME(gemm_tune)(struct queue *queue, const struct tuning_files *files)
{
    struct cublaslt *c;
    if (open_library(queue, &c)) return; /* the first GEMM reports the failure */
    BUG_IF(c->tuner);
    if (c->handle) c->tuner = cublaslt_tuner_open(queue, files);
}

void GPU_NAME(gemm_close)(struct queue *queue)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    struct cublaslt *c = q->gemm;
    if (!c) return;
    cublaslt_tuner_close(c->tuner);
    for (size_t i = 0; i < c->count; i++) release_matmul(&c->matmuls[i]);
    free(c->matmuls);
    if (c->handle) cublasLtDestroy(c->handle);
    free(c);
    q->gemm = NULL;
}

/* --- running a GEMM --- */

static enum status run_matmul(const struct cublaslt *c, const struct cublaslt_call *call,
                              struct queue *queue)
{
    const struct cublaslt_matmul *m = call->matmul;
    const struct gemm *g = &m->gemm;
    const struct gemm_io *io = call->io;
    struct gemm_factors on_host = {1, g->accumulate ? 1 : 0}, *factors = &on_host;
    if (g->scaled && is_fp8(g)) {
        TRY(set_scales(m, &io->b_scale->inverse, &io->a_scale->inverse));
    } else if (g->scaled) {
        factors = arena_alloc(&queue->scratch, 1, sizeof *factors);
        TRY(GPU_NAME(gemm_factors)(g, io, factors, queue));
    }
    CUBLASLT_TRY(cublasLtMatmul(c->handle, m->desc, &factors->alpha, io->b, m->first, io->a,
                                m->second, &factors->beta, io->d ? io->d : io->c, m->result, io->c,
                                m->result, call->algorithm, call->workspace, call->workspace_bytes,
                                gpu_stream_of(queue)));
    return STATUS_OK;
}

enum status cublaslt_run(const struct cublaslt *c, const struct cublaslt_call *call,
                         struct queue *queue)
{
    size_t mark = arena_mark(&queue->scratch);
    enum status st = run_matmul(c, call, queue);
    arena_reset(&queue->scratch, mark); /* the tuner continues after a failure */
    return st;
}

/* The largest power of two, up to MAX_ALIGNMENT, that divides every operand's address. */
static unsigned common_alignment(const struct gemm_io *io)
{
    uintptr_t bits = (uintptr_t)io->a | (uintptr_t)io->b | (uintptr_t)io->c | MAX_ALIGNMENT;
    bits |= (uintptr_t)io->d;
    return (unsigned)(bits & -bits);
}

enum status GPU_NAME(gemm)(const struct gemm *g, const struct gemm_io *io, struct queue *queue)
{
    struct cublaslt *c;
    const struct cublaslt_matmul *m;
    size_t mark = arena_mark(&queue->scratch);
    TRY(find_matmul(g, common_alignment(io), queue, &c, &m));
    bool fits =
        queue->sizing || m->workspace + EXTRA_SCRATCH <= queue->scratch.size - queue->scratch.used;
    if (!m->desc || !fits) {
        TRY(GPU_NAME(gemm_tiled)(g, io, queue));
        return STATUS_OK;
    }
    if (queue->sizing) {
        (void)arena_alloc(&queue->scratch, m->workspace + EXTRA_SCRATCH, 1);
    } else {
        struct cublaslt_call call = {m, &m->algorithm, io, NULL, m->workspace};
        unsigned char *at =
            arena_alloc(&queue->scratch, m->workspace + CUBLASLT_WORKSPACE_ALIGN, 1);
        call.workspace = at + (CUBLASLT_WORKSPACE_ALIGN - (uintptr_t)at % CUBLASLT_WORKSPACE_ALIGN);
        TRY(cublaslt_run(c, &call, queue));
        if (queue->trace) GPU_TRY(gpuStreamSynchronize(gpu_stream_of(queue)));
    }
    arena_reset(&queue->scratch, mark);
    return STATUS_OK;
}
