// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/column_major.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/log.h"
#include "ops/float8.h"

#include <stdlib.h>

enum { ALIGNMENT = 16 }; /* bytes; all algorithms are for it, and few for less */

static const cudaDataType_t types[GEMM_NUMBERS] = {[GEMM_F32] = CUDA_R_32F,
                                                   [GEMM_BF16] = CUDA_R_16BF,
                                                   [GEMM_E4M3] = CUDA_R_8F_E4M3,
                                                   [GEMM_E5M2] = CUDA_R_8F_E5M2};

static bool is_eight_bits(const struct gemm *g) { return g->a >= GEMM_E4M3; }

static bool same(const struct gemm *x, const struct gemm *y)
{
    return x->M == y->M && x->N == y->N && x->K == y->K && x->transpose_a == y->transpose_a &&
           x->transpose_b == y->transpose_b && x->accumulate == y->accumulate &&
           x->scaled == y->scaled && x->a == y->a && x->b == y->b && x->out == y->out;
}

/* --- what is prepared ----------------------------------------------------------------------- */

static enum status open_library(struct queue *on, struct gemms **out)
{
    struct gpu_queue *q = (struct gpu_queue *)on;
    *out = q->gemm;
    if (*out) return STATUS_OK;
    struct gemms *s = heap(sizeof *s);
    cublasStatus_t status = cublasLtCreate(&s->library);
    if (status) {
        free(s);
        FAIL(DEVICE, "cuBLASLt cannot begin: %s", cublasLtGetStatusString(status));
    }
    *out = q->gemm = s;
    return STATUS_OK;
}

static void forget(struct prepared *p)
{
    if (p->product) cublasLtMatmulDescDestroy(p->product);
    if (p->first) cublasLtMatrixLayoutDestroy(p->first);
    if (p->second) cublasLtMatrixLayoutDestroy(p->second);
    if (p->result) cublasLtMatrixLayoutDestroy(p->result);
    p->product = NULL, p->first = p->second = p->result = NULL;
}

#define SET(product, attribute, value)                                                             \
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_##attribute, &(value), \
                                              sizeof(value)))

static enum status make_layout(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                               const struct gemm_stored *s)
{
    CUBLAS_TRY(
        cublasLtMatrixLayoutCreate(out, type, (uint64_t)s->rows, (uint64_t)s->columns, s->rows));
    return STATUS_OK;
}

/* bf16 that eight bits made are scaled by alpha, which then is the device's; eight bits by the
 * library itself. */
static enum status describe(struct prepared *p)
{
    const struct gemm *g = &p->what;
    struct gemm_columns c = gemm_columns(g);
    cublasOperation_t first = c.first.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = c.second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t where = CUBLASLT_POINTER_MODE_DEVICE;
    int8_t fast = g->a == GEMM_E4M3 && g->b == GEMM_E4M3;
    CUBLAS_TRY(cublasLtMatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(p->product, TRANSA, first);
    SET(p->product, TRANSB, second);
    if (is_eight_bits(g)) SET(p->product, FAST_ACCUM, fast);
    if (g->scaled && !is_eight_bits(g)) SET(p->product, POINTER_MODE, where);
    TRY(make_layout(&p->first, types[g->b], &c.first));
    TRY(make_layout(&p->second, types[g->a], &c.second));
    TRY(make_layout(&p->result, g->out == F32 ? CUDA_R_32F : CUDA_R_16BF, &c.result));
    return STATUS_OK;
}

/* `most` bytes of workspace. */
static enum status propose(const struct gemms *s, const struct prepared *p, uint64_t most,
                           cublasLtMatmulPreference_t wish,
                           cublasLtMatmulHeuristicResult_t *proposed, int *count)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t alignment = p->alignment;
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &most, sizeof most));
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(wish, alignments[i], &alignment,
                                                        sizeof alignment));
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(s->library, p->product, p->first, p->second, p->result,
                                       p->result, wish, MOST_ALGORITHMS, proposed, count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        *count = 0; /* there is none for these types and sizes */
    else
        CUBLAS_TRY(status);
    return STATUS_OK;
}

/* Those that failed are left out. */
static int sift(cublasLtMatmulHeuristicResult_t *proposed, int count, size_t most)
{
    int good = 0;
    for (int i = 0; i < count; i++)
        if (proposed[i].state == CUBLAS_STATUS_SUCCESS && proposed[i].workspaceSize <= most)
            proposed[good++] = proposed[i];
    return good;
}

/* A product takes up to so much more of the scratch than its workspace. */
enum { BESIDE = WORKSPACE_ALIGN + 2 * ARENA_ALIGN };

/* A product that no measuring pass met has no claim to more than is left. */
static size_t most_workspace(const struct queue *on)
{
    size_t left = on->scratch.size - on->scratch.used;
    if (on->measuring) return WORKSPACE_MOST;
    left = left > BESIDE ? left - BESIDE : 0;
    return left < WORKSPACE_MOST ? left : WORKSPACE_MOST;
}

static void tell_of_ours(const struct prepared *p)
{
    const struct gemm *g = &p->what;
    log_line(LOG_INFO,
             "GPU: cuBLASLt has no algorithm for a product of %d x %d x %d on %u bytes: kernels "
             "of our own make it",
             g->M, g->N, g->K, p->alignment);
}

static enum status prepare(struct gemms *s, const struct gemm *g, unsigned alignment,
                           struct queue *on, struct prepared *p)
{
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t proposed[MOST_ALGORITHMS];
    size_t most = most_workspace(on);
    int count = 0;
    enum status st = STATUS_OK;
    *p = (struct prepared){.what = *g, .alignment = alignment};
    TRY_OUT(describe(p));
    if (cublasLtMatmulPreferenceCreate(&wish))
        FAIL_OUT(DEVICE, "cuBLASLt has no memory for what is wished");
    TRY_OUT(propose(s, p, most, wish, proposed, &count));
    count = sift(proposed, count, most);
    if (count) {
        p->algorithm = proposed[0].algo, p->workspace = proposed[0].workspaceSize;
        if (s->tuner && on->measuring) cublaslt_tuner_choose(s->tuner, s, p, proposed, count, on);
    } else {
        tell_of_ours(p);
    }
out:
    if (wish) cublasLtMatmulPreferenceDestroy(wish);
    if (st || !count) forget(p);
    return st;
}

static enum status find(const struct gemm *g, unsigned alignment, struct queue *on,
                        struct gemms **s, const struct prepared **out)
{
    TRY(open_library(on, s));
    struct gemms *all = *s;
    if (all->tuner && !on->measuring) cublaslt_tuner_tell(all->tuner);
    for (size_t i = 0; i < all->count; i++)
        if (all->prepared[i].alignment == alignment && same(&all->prepared[i].what, g)) {
            *out = &all->prepared[i];
            return STATUS_OK;
        }
    struct prepared p;
    TRY(prepare(all, g, alignment, on, &p));
    all->prepared = heap_grow(all->prepared, all->count + 1, sizeof *all->prepared);
    all->prepared[all->count] = p;
    *out = &all->prepared[all->count++];
    return STATUS_OK;
}

void GPU_NAME(gemm_tune)(struct queue *on, const char *path)
{
    struct gemms *s;
    if (open_library(on, &s)) return; /* the first product says so */
    BUG_IF(s->tuner);
    s->tuner = cublaslt_tuner_open(on, path);
}

void GPU_NAME(gemm_close)(struct queue *on)
{
    struct gpu_queue *q = (struct gpu_queue *)on;
    struct gemms *s = q->gemm;
    if (!s) return;
    cublaslt_tuner_close(s->tuner);
    for (size_t i = 0; i < s->count; i++) forget(&s->prepared[i]);
    free(s->prepared);
    cublasLtDestroy(s->library);
    free(s);
    q->gemm = NULL;
}

/* --- a product ------------------------------------------------------------------------------ */

enum status cublaslt_run(const struct gemms *s, const struct prepared *p,
                         const cublasLtMatmulAlgo_t *algorithm, const struct gemm_io *io,
                         void *workspace, size_t bytes, struct queue *on)
{
    const struct gemm *g = &p->what;
    size_t mark = arena_mark(&on->scratch);
    struct gemm_factors here = {1, g->accumulate ? 1 : 0}, *factors = &here;
    if (g->scaled && is_eight_bits(g)) {
        const float *first = &io->b_scale->inverse, *second = &io->a_scale->inverse;
        SET(p->product, A_SCALE_POINTER, first);
        SET(p->product, B_SCALE_POINTER, second);
    } else if (g->scaled) {
        factors = arena_take(&on->scratch, 1, sizeof *factors);
        TRY(GPU_NAME(gemm_factors)(g, io, factors, on));
    }
    CUBLAS_TRY(cublasLtMatmul(s->library, p->product, &factors->alpha, io->b, p->first, io->a,
                              p->second, &factors->beta, io->d, p->result, io->c, p->result,
                              algorithm, workspace, bytes, gpu_stream_of(on)));
    arena_reset(&on->scratch, mark);
    return STATUS_OK;
}

/* The largest power of two that all begin at a multiple of, up to ALIGNMENT. */
static unsigned alignment_of(const struct gemm_io *io)
{
    uintptr_t all = (uintptr_t)io->a | (uintptr_t)io->b | (uintptr_t)io->c | ALIGNMENT;
    all |= (uintptr_t)io->d;
    return (unsigned)(all & -all);
}

enum status GPU_NAME(gemm)(const struct gemm *g, const struct gemm_io *io, struct queue *on)
{
    struct gemms *s;
    const struct prepared *p;
    size_t mark = arena_mark(&on->scratch);
    TRY(find(g, alignment_of(io), on, &s, &p));
    bool fits = on->measuring || p->workspace + BESIDE <= on->scratch.size - on->scratch.used;
    if (!p->product || !fits) {
        TRY(GPU_NAME(gemm_tiled)(g, io, on));
        return STATUS_OK;
    }
    if (on->measuring) {
        (void)arena_take(&on->scratch, p->workspace + BESIDE, 1);
    } else {
        unsigned char *at = arena_take(&on->scratch, p->workspace + WORKSPACE_ALIGN, 1);
        void *workspace = at + (WORKSPACE_ALIGN - (uintptr_t)at % WORKSPACE_ALIGN);
        TRY(cublaslt_run(s, p, &p->algorithm, io, workspace, p->workspace, on));
        if (on->trace) GPU_TRY(gpuStreamSynchronize(gpu_stream_of(on)));
    }
    arena_reset(&on->scratch, mark);
    return STATUS_OK;
}
