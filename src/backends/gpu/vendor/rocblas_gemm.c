// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/rocblas_gemm.h"

#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/column_major.h"
#include "backends/gpu/vendor/rocblas.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHECK_M = 96,
    CHECK_N = 160,
    CHECK_K = 64,
    CHECK_WORKSPACE = 1 << 20, /* bytes */
    NUM_VARIANTS = 16,         /* types of operands and of C, transposes of A and B */
};

struct rocblas_gemm {
    rocblas_handle handle;
    struct failure checked[NUM_VARIANTS]; /* what rocblas_gemm_check returns again */
    bool was_checked[NUM_VARIANTS];
};

/* Fails with UNSUPPORTED and the library's status. */
#define ROCBLAS_TRY(call)                                                                          \
    do {                                                                                           \
        enum rocblas_status status_ = (call);                                                      \
        if (status_) FAIL(UNSUPPORTED, "rocBLAS: %s: status %d", #call, (int)status_);             \
    } while (0)

/* A handle begins with 32 or 128 MiB of its own, which the last call frees. */
static enum status prepare_handle(rocblas_handle handle, struct queue *queue)
{
    ROCBLAS_TRY(rocblas_set_stream(handle, gpu_stream_of(queue)));
    ROCBLAS_TRY(rocblas_set_atomics_mode(handle, ROCBLAS_ATOMICS_NOT_ALLOWED));
    ROCBLAS_TRY(rocblas_set_workspace(handle, NULL, 0));
    return STATUS_OK;
}

enum status rocblas_gemm_open(struct rocblas_gemm **out, struct queue *queue)
{
    rocblas_handle handle;
    *out = NULL;
    TRY(rocblas_load());
    ROCBLAS_TRY(rocblas_create_handle(&handle));
    enum status st = prepare_handle(handle, queue);
    if (st) rocblas_destroy_handle(handle);
    TRY(st);
    *out = heap(sizeof **out);
    (*out)->handle = handle;
    return STATUS_OK;
}

void rocblas_gemm_close(struct rocblas_gemm *r)
{
    if (r) rocblas_destroy_handle(r->handle);
    free(r);
}

enum status rocblas_gemm_library(struct text *out)
{
    char version[256] = "";
    size_t len = 0;
    TRY(rocblas_load());
    ROCBLAS_TRY(rocblas_get_version_string(version, sizeof version));
    for (int dots = 0; version[len] && (version[len] != '.' || ++dots < 3);) len++;
    text_addf(out, "rocBLAS %.*s", (int)len, version); /* without the commit */
    return STATUS_OK;
}

static enum rocblas_type type_of(bool is_f32) { return is_f32 ? ROCBLAS_F32_R : ROCBLAS_BF16_R; }

static enum rocblas_operation operation_of(const struct column_major_matrix *x)
{
    return x->transposed ? ROCBLAS_OPERATION_TRANSPOSE : ROCBLAS_OPERATION_NONE;
}

enum status rocblas_gemm_run(struct rocblas_gemm *r, const struct rocblas_call *call)
{
    const struct gemm *g = call->gemm;
    const struct gemm_io *io = call->io;
    struct column_major c = column_major_gemm(g);
    enum rocblas_type first = type_of(g->b == GEMM_F32), second = type_of(g->a == GEMM_F32);
    enum rocblas_type result = type_of(g->out == F32);
    float alpha = 1, beta = g->accumulate ? 1 : 0;
    const void *d = io->d ? io->d : io->c;
    ROCBLAS_TRY(rocblas_set_workspace(r->handle, call->workspace, call->bytes));
    enum rocblas_status status = rocblas_gemm_ex(
        r->handle, operation_of(&c.first), operation_of(&c.second), c.m, c.n, c.k, &alpha, io->b,
        first, c.first.rows, io->a, second, call->leading, &beta, d, result, c.m, io->c, result,
        c.m, ROCBLAS_F32_R, ROCBLAS_ALGORITHM_STANDARD, 0, 0);
    if (status) {
        (void)gpuGetLastError(); /* the next launch would report it */
        FAIL(UNSUPPORTED, "rocBLAS refuses it with status %d", (int)status);
    }
    return STATUS_OK;
}

/* -1, 0 and 1: sums are small integers, which bf16 has. */
static float operand(int row, int column) { return (float)((row * 7 + column * 5) % 11 % 3 - 1); }

static void put(void *x, int i, bool is_f32, float value)
{
    if (is_f32)
        ((float *)x)[i] = value;
    else
        ((bf16 *)x)[i] = bf16_from_f32(value);
}

/* A matrix of rows x columns as a GEMM reads it, row-major, transposed or not. */
static void fill(void *x, int rows, int columns, bool transposed, bool is_f32)
{
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            put(x, transposed ? column * rows + row : row * columns + column, is_f32,
                operand(row, column));
}

/* C was D, which has the elements of an operand. */
static enum status compare(const void *c, bool is_f32)
{
    for (int row = 0; row < CHECK_M; row++)
        for (int column = 0; column < CHECK_N; column++) {
            int i = row * CHECK_N + column;
            float expected = operand(row, column), is;
            for (int k = 0; k < CHECK_K; k++) expected += operand(row, k) * operand(k, column);
            is = is_f32 ? ((const float *)c)[i] : bf16_to_f32(((const bf16 *)c)[i]);
            if (is != expected)
                FAIL(UNSUPPORTED, "rocBLAS computes %g where %g is right", (double)is,
                     (double)expected);
        }
    return STATUS_OK;
}

enum { A_SIZE = CHECK_M * CHECK_K, B_SIZE = CHECK_K * CHECK_N, C_SIZE = CHECK_M * CHECK_N };

/* `device` has room for A, B and C in f32, and the workspace; `host` for the matrices. */
static enum status multiply(struct rocblas_gemm *r, const struct gemm *g, struct queue *queue,
                            struct arena *device, float *host)
{
    float *a = arena_alloc(device, A_SIZE, sizeof *a), *b = arena_alloc(device, B_SIZE, sizeof *b);
    float *c = arena_alloc(device, C_SIZE, sizeof *c);
    void *workspace = arena_alloc(device, CHECK_WORKSPACE, 1);
    struct gemm_io io = {.a = a, .b = b, .d = c, .c = c};
    struct rocblas_call call = {g, &io, g->transpose_a ? g->M : g->K, workspace, CHECK_WORKSPACE};
    fill(host, g->M, g->K, g->transpose_a, g->a == GEMM_F32);
    TRY(queue_copy(queue, a, host, A_SIZE * sizeof *a));
    fill(host, g->K, g->N, g->transpose_b, g->b == GEMM_F32);
    TRY(queue_copy(queue, b, host, B_SIZE * sizeof *b));
    fill(host, g->M, g->N, false, g->out == F32);
    TRY(queue_copy(queue, c, host, C_SIZE * sizeof *c));
    TRY(rocblas_gemm_run(r, &call));
    TRY(queue_copy(queue, host, c, C_SIZE * sizeof *c));
    TRY(compare(host, g->out == F32));
    return STATUS_OK;
}

static enum status check_variant(struct rocblas_gemm *r, const struct gemm *g, struct queue *queue)
{
    enum { FLOATS = A_SIZE + B_SIZE + C_SIZE, BYTES = CHECK_WORKSPACE + 4 * ARENA_ALIGN };
    struct gemm small = *g;
    struct arena device = {0};
    float *host = heap(FLOATS * sizeof *host);
    bool sizing = queue->sizing;
    small.M = CHECK_M, small.N = CHECK_N, small.K = CHECK_K, small.accumulate = true;
    enum status st =
        arena_init(&device, FLOATS * sizeof(float) + BYTES, queue_device_allocator(queue));
    queue->sizing = false;
    if (!st) st = multiply(r, &small, queue, &device, host);
    queue->sizing = sizing;
    arena_release(&device);
    free(host);
    return st;
}

enum status rocblas_gemm_check(struct rocblas_gemm *r, const struct gemm *g, struct queue *queue)
{
    int i = (g->a == GEMM_F32) + 2 * (g->out == F32) + 4 * g->transpose_a + 8 * g->transpose_b;
    if (!r->was_checked[i]) {
        enum status st = check_variant(r, g, queue);
        if (st) status_save(&r->checked[i], st);
        r->was_checked[i] = true;
    }
    TRY(status_restore(&r->checked[i]));
    return STATUS_OK;
}
