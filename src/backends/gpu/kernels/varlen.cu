/* varlen.cu -- finds the documents of a batch, and writes the ragged offsets and transposed
 * statistics that cuDNN's varlen attention reads. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/varlen.h"

#include "backends/gpu/kernels/kernel.h"

/* Steps from document to document, so its time is their number, not the number of tokens. */
extern "C" bool GPU_NAME(varlen_find)(const struct varlen_bounds *bounds, int max,
                                      struct varlen *out)
{
    const int T = bounds->T;
    out->count = 0;
    if (max > VARLEN_MAX_SEQUENCES) max = VARLEN_MAX_SEQUENCES;
    for (int b = 0; b < bounds->B; b++) {
        size_t row = (size_t)b * (size_t)T;
        for (int t = 0, end; t < T; t = end) {
            end = bounds->end_BT[row + (size_t)t];
            if (out->count == max || bounds->start_BT[row + (size_t)t] != t || end <= t || end > T)
                return false;
            out->cu_seqlens[out->count++] = (int32_t)row + t;
        }
    }
    out->cu_seqlens[out->count] = (int32_t)((size_t)bounds->B * (size_t)T);
    return true;
}

static __global__ void varlen_offsets_kernel(struct varlen v, struct varlen_offsets to)
{
    for (int i = (int)threadIdx.x; i <= to.sequences; i += (int)blockDim.x) {
        int64_t first = v.cu_seqlens[i < v.count ? i : v.count];
        for (int list = 0; list < VARLEN_LISTS; list++)
            to.offsets[list][i] = first * to.token_elements[list];
        if (i < to.sequences)
            to.lengths[i] = i < v.count ? v.cu_seqlens[i + 1] - (int32_t)first : 0;
    }
}

extern "C" enum status GPU_NAME(varlen_write_offsets)(const struct varlen *v,
                                                      const struct varlen_offsets *to,
                                                      struct queue *queue)
{
    LAUNCH(varlen_offsets_kernel, 1, 256, 0, queue, *v, *to);
    return STATUS_OK;
}

enum { TILE = 32, TILE_ROWS = 8 };

/* Transposes a rows x columns matrix per blockIdx.z, through shared memory. */
static __global__ void transpose_kernel(const float *in, float *out, int rows, int columns)
{
    __shared__ float tile[TILE][TILE + 1];
    size_t matrix = (size_t)blockIdx.z * (size_t)rows * (size_t)columns;
    int lane = (int)threadIdx.x % TILE, line = (int)threadIdx.x / TILE;
    int row0 = (int)blockIdx.x * TILE, column0 = (int)blockIdx.y * TILE;
    for (int i = line; i < TILE; i += TILE_ROWS)
        if (row0 + i < rows && column0 + lane < columns)
            tile[i][lane] =
                in[matrix + (size_t)(row0 + i) * (size_t)columns + (size_t)(column0 + lane)];
    __syncthreads();
    for (int i = line; i < TILE; i += TILE_ROWS)
        if (column0 + i < columns && row0 + lane < rows)
            out[matrix + (size_t)(column0 + i) * (size_t)rows + (size_t)(row0 + lane)] =
                tile[lane][i];
}

static const int MAX_GRID_Z = 65535;

struct transpose {
    int matrices, rows, columns;
};

static enum status launch_transpose(const float *in, float *out, struct transpose t,
                                    struct queue *queue)
{
    size_t elements = (size_t)t.rows * (size_t)t.columns;
    for (int first = 0; first < t.matrices; first += MAX_GRID_Z) {
        int count = t.matrices - first < MAX_GRID_Z ? t.matrices - first : MAX_GRID_Z;
        size_t from = (size_t)first * elements;
        dim3 grid((unsigned)ceil_div((size_t)t.rows, TILE),
                  (unsigned)ceil_div((size_t)t.columns, TILE), (unsigned)count);
        LAUNCH(transpose_kernel, grid, TILE * TILE_ROWS, 0, queue, in + from, out + from, t.rows,
               t.columns);
    }
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(varlen_to_heads)(const float *from_NH, float *to_BHT,
                                                 struct varlen_shape shape, struct queue *queue)
{
    TRY(launch_transpose(from_NH, to_BHT, {shape.B, shape.T, shape.H}, queue));
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(varlen_to_tokens)(const float *from_BHT, float *to_NH,
                                                  struct varlen_shape shape, struct queue *queue)
{
    TRY(launch_transpose(from_BHT, to_NH, {shape.B, shape.H, shape.T}, queue));
    return STATUS_OK;
}
