/* documents.cu -- where documents begin, and numbers of heads that lie by heads or by tokens. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/varlen.h"

#include "backends/gpu/kernels/kernel.h"

/* From document to document, so that a long row of one costs nothing. */
extern "C" bool GPU_NAME(documents_find)(const int32_t *start_BT, const int32_t *end_BT, int B,
                                         int T, int most, struct documents *out)
{
    out->count = 0;
    if (most > MOST_DOCUMENTS) most = MOST_DOCUMENTS;
    for (int b = 0; b < B; b++) {
        size_t row = (size_t)b * (size_t)T;
        for (int t = 0, end; t < T; t = end) {
            end = end_BT[row + (size_t)t];
            if (out->count == most || start_BT[row + (size_t)t] != t || end <= t || end > T)
                return false;
            out->first[out->count++] = (int32_t)row + t;
        }
    }
    out->first[out->count] = (int32_t)((size_t)B * (size_t)T);
    return true;
}

static __global__ void place(struct documents d, struct document_places to)
{
    for (int i = (int)threadIdx.x; i <= to.rows; i += (int)blockDim.x) {
        int64_t first = d.first[i < d.count ? i : d.count];
        for (int list = 0; list < DOCUMENT_LISTS; list++)
            to.begin[list][i] = first * to.elements[list];
        if (i < to.rows) to.lengths[i] = i < d.count ? d.first[i + 1] - (int32_t)first : 0;
    }
}

extern "C" enum status GPU_NAME(documents_place)(const struct documents *d,
                                                 const struct document_places *to, struct queue *on)
{
    LAUNCH(place, 1, 256, 0, on, *d, *to);
    return STATUS_OK;
}

enum { TILE = 32, TILE_ROWS = 8 };

/* out[j][i] = in[i][j] of `rows` x `columns` numbers, one matrix a block of z. */
static __global__ void turn(const float *in, float *out, int rows, int columns)
{
    __shared__ float tile[TILE][TILE + 1];
    size_t matrix = (size_t)blockIdx.z * (size_t)rows * (size_t)columns;
    int lane = (int)threadIdx.x % TILE, line = (int)threadIdx.x / TILE;
    for (int row0 = (int)blockIdx.x * TILE; row0 < rows; row0 += (int)gridDim.x * TILE) {
        int column0 = (int)blockIdx.y * TILE;
        __syncthreads(); /* who still reads the tile before */
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
}

/* As many blocks as a grid may have in y and z. */
static const int MOST_Z = 65535;

static enum status turn_all(const float *in, float *out, int matrices, int rows, int columns,
                            struct queue *on)
{
    size_t each = (size_t)rows * (size_t)columns;
    for (int at = 0; at < matrices; at += MOST_Z) {
        int count = matrices - at < MOST_Z ? matrices - at : MOST_Z;
        size_t from = (size_t)at * each, strips = ceil_div((size_t)rows, TILE);
        dim3 grid((unsigned)(strips < (size_t)MOST_Z ? strips : (size_t)MOST_Z),
                  (unsigned)ceil_div((size_t)columns, TILE), (unsigned)count);
        LAUNCH(turn, grid, TILE * TILE_ROWS, 0, on, in + from, out + from, rows, columns);
    }
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(by_head)(const float *from_NH, float *to_BHT, int B, int T, int H,
                                         struct queue *on)
{
    TRY(turn_all(from_NH, to_BHT, B, T, H, on));
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(by_token)(const float *from_BHT, float *to_NH, int B, int T, int H,
                                          struct queue *on)
{
    TRY(turn_all(from_BHT, to_NH, B, H, T, on));
    return STATUS_OK;
}
