/* fp8.cu -- quantization to FP8, of a tensor in memory or of one that an op's formula computes from
 * its inputs (ops/fused_quantize.h): then the tensor is never stored.
 *
 * Tiles    Each block computes a square of the result once, writes its rows, transposes it and
 *          writes its columns, all with 16-byte accesses.  Four threads transpose the bytes of four
 *          rows with shuffles, so that shared memory holds words of four rows of a column.
 * Order    amax: a maximum, which does not depend on the order.  The rstd of a norm has the bits of
 *          rmsnorm.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/fp8.h"
#include "backends/gpu/kernels/swiglu.h"

extern "C" {
#include "backends/gpu/fp8.h"
#include "ops/fused_quantize.h"
#include "tensor/queue.h"
}

enum {
    SIDE = 64,
    VECTOR = 16,
    ACROSS = SIDE / VECTOR, /* threads of a row */
    THREADS = SIDE * ACROSS,
    WORD = 4, /* bytes */
    WORDS = SIDE / WORD,
};
#if defined(GPU_EMULATED)
static const size_t max_amax_blocks = 1; /* so that small tests take several steps */
#else
static const size_t max_amax_blocks = 1024;
#endif

/* --- what is quantized: load() computes up to VECTOR elements of a row, from column c --- */

/* `wide`: rows are whole vectors, aligned to 16 bytes. */
template <typename T>
static __device__ __forceinline__ void load_part(const T *x, int count, bool wide,
                                                 float (&to)[VECTOR])
{
    if (wide)
        load<VECTOR>(x, to);
    else
        for (int i = 0; i < VECTOR; i++) to[i] = i < count ? to_f32(x[i]) : 0;
}

template <typename T> struct tensor_source {
    enum { PARTS = 1 };
    const T *x;
    size_t columns;
    bool wide;
    __device__ __forceinline__ void load(size_t r, size_t c, int count,
                                         float (&to)[PARTS][VECTOR]) const
    {
        load_part(x + r * columns + c, count, wide, to[0]);
    }
};

template <typename T> struct rmsnorm_source {
    enum { PARTS = 1 };
    const T *x, *w;
    const float *rstd;
    size_t columns;
    bool wide;
    __device__ __forceinline__ void load(size_t r, size_t c, int count,
                                         float (&to)[PARTS][VECTOR]) const
    {
        float weights[VECTOR], scale = rstd[r];
        load_part(x + r * columns + c, count, wide, to[0]);
        load_part(w + c, count, wide, weights);
        for (int i = 0; i < VECTOR; i++)
            to[0][i] = round_to<T>(round_to<T>(to[0][i] * scale) * weights[i]);
    }
};

template <typename T> struct swiglu_source {
    enum { PARTS = 1 };
    const T *gate_up;
    size_t columns;
    bool wide;
    __device__ __forceinline__ void load(size_t r, size_t c, int count,
                                         float (&to)[PARTS][VECTOR]) const
    {
        float up[VECTOR];
        const T *row = gate_up + r * 2 * columns + c;
        load_part(row, count, wide, to[0]);
        load_part(row + columns, count, wide, up);
        for (int i = 0; i < VECTOR; i++) to[0][i] = round_to<T>(swiglu_of(to[0][i], up[i]));
    }
};

/* Two parts: the gradients of gate and of up, at the same columns of either half of a row. */
template <typename T> struct swiglu_grad_source {
    enum { PARTS = 2 };
    const T *gate_up, *dout;
    size_t columns;
    bool wide;
    __device__ __forceinline__ void load(size_t r, size_t c, int count,
                                         float (&to)[PARTS][VECTOR]) const
    {
        float d[VECTOR];
        const T *row = gate_up + r * 2 * columns + c;
        load_part(row, count, wide, to[0]);
        load_part(row + columns, count, wide, to[1]);
        load_part(dout + r * columns + c, count, wide, d);
        for (int i = 0; i < VECTOR; i++) {
            swiglu_gradients(d[i], to[0][i], to[1][i]);
            to[0][i] = round_to<T>(to[0][i]), to[1][i] = round_to<T>(to[1][i]);
        }
    }
};

/* Values that are quantized already, row by row. */
template <typename F> struct fp8_source {
    enum { PARTS = 1 };
    const uint8_t *x;
    size_t columns;
    bool wide;
    __device__ __forceinline__ void load(size_t r, size_t c, int count,
                                         float (&to)[PARTS][VECTOR]) const
    {
        const uint8_t *row = x + r * columns + c;
        uint8_t bytes[VECTOR] = {};
        if (wide) {
            uint4 bits = *(const uint4 *)row;
            memcpy(bytes, &bits, sizeof bits);
        } else {
            for (int i = 0; i < VECTOR; i++)
                if (i < count) bytes[i] = row[i];
        }
        for (int i = 0; i < VECTOR; i++) to[0][i] = to_f32(to_bf16(F{bytes[i]}));
    }
};

/* --- scales --- */

/* Where a kernel finds the scale: given, or from the amax as find_scale of ops/float8.h.  Neither,
 * for fp8_source: it is 1. */
struct scale_source {
    const struct float8_scale *given;
    struct find_scale_io find;
    int amaxes; /* of find.amax */
    float format_max;
    float *amax; /* raised by the amax of what is quantized, without NaNs; NULL: not computed */
};

/* Called by one thread of each block; the first block also stores the result. */
static __device__ __forceinline__ float scale_of(const struct scale_source &s)
{
    if (s.given) return s.given->scale;
    if (!s.find.amax) return 1;
    return compute_scale(s.find, s.amaxes, s.format_max, blockIdx.x == 0);
}

/* --- tiles --- */

struct fp8_vector {
    uint8_t x[VECTOR];
};

/* Stores the first `count` bytes; as one vector if `wide`. */
static __device__ __forceinline__ void store_vector(const struct fp8_vector &from, uint8_t *to,
                                                    int count, bool wide)
{
    if (wide && count >= VECTOR) {
        uint4 bits;
        memcpy(&bits, from.x, sizeof bits);
        *(uint4 *)to = bits;
    } else {
        for (int i = 0; i < VECTOR; i++)
            if (i < count) to[i] = from.x[i];
    }
}

/* Where FP8 values go; a storage order that is NULL is not written. */
struct fp8_target {
    uint8_t *row_major, *column_major; /* FP8 */
    bf16 *values;                      /* as bf16, without native FP8 */
    bool wide_rows, wide_columns;      /* rows, columns are whole vectors, aligned to 16 bytes */
};

template <typename F>
static __device__ __forceinline__ struct fp8_vector quantize_vector(const float (&values)[VECTOR],
                                                                    float scale)
{
    struct fp8_vector v;
    for (int i = 0; i < VECTOR; i += 2) {
        uint16_t pair = fp8x2_from_f32<F>(scale * values[i], scale * values[i + 1]);
        v.x[i] = (uint8_t)pair, v.x[i + 1] = (uint8_t)(pair >> 8);
    }
    return v;
}

static __device__ __forceinline__ unsigned finite_bits(float x)
{
    unsigned bits = abs_bits<float>(x);
    return bits > 0x7F800000u ? 0 : bits;
}

/* x: four consecutive columns of this thread's row.  Returns column row % 4 of them, for the four
 * rows that begin at row / 4 * 4, first row in the lowest byte.  All lanes of the warp must call
 * it. */
static __device__ __forceinline__ unsigned transpose_bytes(unsigned x, int row)
{
    const unsigned even = 0x00FF00FFu, low = 0x0000FFFFu;
    unsigned other = shuffle_xor(x, ACROSS);
    x = row & 1 ? (x & ~even) | (other >> 8 & even) : (x & even) | (other & even) << 8;
    other = shuffle_xor(x, 2 * ACROSS);
    return row & 2 ? (x & ~low) | other >> 16 : (x & low) | other << 16;
}

/* Where shared memory has word w of column c: permuted so that the 32 lanes of a warp store to, and
 * load from, different banks. */
static __device__ __forceinline__ int permute_word(int c, int w)
{
    return w ^ ((c >> 2 & 1) | (c & 2) | c >> 4 << 2);
}

template <typename F, typename S>
static __global__ void __launch_bounds__(THREADS)
    fp8_quantize_kernel(size_t rows, size_t columns, S source, struct fp8_target to,
                        struct scale_source scales)
{
    __shared__ unsigned square[SIDE][WORDS]; /* columns x four rows */
    __shared__ float shared_scale;
    const size_t across = (columns + SIDE - 1) / SIDE, all_columns = S::PARTS * columns;
    const size_t row0 = blockIdx.x / across * SIDE, column0 = blockIdx.x % across * SIDE;
    const int line = (int)threadIdx.x / ACROSS;
    const int at = (int)threadIdx.x % ACROSS * VECTOR;
    const size_t r = row0 + line, c = column0 + at;
    const int count = r < rows && c < columns ? (int)min(columns - c, (size_t)VECTOR) : 0;
    const size_t out_c = column0 + line, out_r = row0 + at;
    const bool stores_column = to.column_major && out_c < columns && out_r < rows;
    float values[S::PARTS][VECTOR] = {};
    unsigned max = 0;
    if (count) source.load(r, c, count, values);
    if (threadIdx.x == 0) shared_scale = scale_of(scales);
    __syncthreads();
    const float scale = shared_scale;
#pragma unroll /* keeps `values` in registers */
    for (int part = 0; part < S::PARTS; part++) {
        const size_t first = part * columns;
        struct fp8_vector v = quantize_vector<F>(values[part], scale);
        if (scales.amax)
            for (int i = 0; i < VECTOR; i++)
                if (i < count) max = larger(max, finite_bits(values[part][i]));
        if (count && to.row_major)
            store_vector(v, to.row_major + r * all_columns + first + c, count, to.wide_rows);
        if (count && to.values)
            for (int i = 0; i < VECTOR; i++)
                if (i < count) to.values[r * all_columns + first + c + i] = to_bf16(F{v.x[i]});
        if (!to.column_major) continue;
        if (part) __syncthreads(); /* the part before has been read */
        unsigned words[VECTOR / WORD];
        memcpy(words, v.x, sizeof words);
        for (int i = 0; i < VECTOR; i += WORD) {
            const int column = at + i + line % WORD;
            square[column][permute_word(column, line / WORD)] =
                transpose_bytes(words[i / WORD], line);
        }
        __syncthreads();
        for (int i = 0; i < VECTOR / WORD; i++)
            words[i] = square[line][permute_word(line, at / WORD + i)];
        memcpy(v.x, words, sizeof words);
        if (stores_column)
            store_vector(v, to.column_major + (first + out_c) * rows + out_r,
                         (int)min(rows - out_r, (size_t)VECTOR), to.wide_columns);
    }
    update_amax(max, scales.amax);
}

/* --- amax --- */

template <typename S>
static __global__ void __launch_bounds__(THREADS)
    source_amax_kernel(size_t rows, size_t columns, S source, float *amax)
{
    /* Positions are rows and vectors of a row: only the first one and the step need a division. */
    const size_t per_row = (columns + VECTOR - 1) / VECTOR;
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t step = (size_t)gridDim.x * THREADS;
    const size_t step_rows = step / per_row, step_vectors = step % per_row;
    size_t r = first / per_row, v = first % per_row;
    unsigned max = 0;
    while (r < rows) {
        const size_t c = v * VECTOR;
        int count = (int)min(columns - c, (size_t)VECTOR);
        float values[S::PARTS][VECTOR];
        source.load(r, c, count, values);
        for (int part = 0; part < S::PARTS; part++)
            for (int i = 0; i < VECTOR; i++)
                if (i < count) max = larger(max, abs_bits<float>(values[part][i]));
        r += step_rows, v += step_vectors;
        if (v >= per_row) v -= per_row, r++;
    }
    update_amax(max, amax);
}

/* A block per row: its rstd, as rmsnorm.cu computes it, and the amax of the normalized row. */
template <typename T, int WIDTH, int HELD>
static __global__ void __launch_bounds__(MAX_BLOCK_SIZE)
    rmsnorm_amax_kernel(int D, float eps, const T *x_ND, const T *w_D, float *rstd_N, float *amax)
{
    const int vectors = D / WIDTH, threads = (int)blockDim.x, thread = (int)threadIdx.x;
    const T *x = x_ND + (size_t)blockIdx.x * D;
    float held[HELD][WIDTH], squares = 0;
    unsigned max = 0;
    auto add_squares = [&](int v, float(&row)[WIDTH]) {
        load<WIDTH>(x + v * WIDTH, row);
        for (int k = 0; k < WIDTH; k++) squares = fmaf(row[k], row[k], squares);
    };
    for (int i = 0; i < HELD; i++)
        if (thread + i * threads < vectors) add_squares(thread + i * threads, held[i]);
    for (int v = thread + HELD * threads; v < vectors; v += threads) {
        float extra[WIDTH];
        add_squares(v, extra);
    }
    const float rstd = 1 / sqrtf(block_sum(squares) / (float)D + eps);
    if (thread == 0) rstd_N[blockIdx.x] = rstd;
    auto find_max = [&](int v, const float(&row)[WIDTH]) {
        float w[WIDTH];
        load<WIDTH>(w_D + v * WIDTH, w);
        for (int k = 0; k < WIDTH; k++)
            max = larger(max, abs_bits<T>(round_to<T>(row[k] * rstd) * w[k]));
    };
    for (int i = 0; i < HELD; i++)
        if (thread + i * threads < vectors) find_max(thread + i * threads, held[i]);
    for (int v = thread + HELD * threads; v < vectors; v += threads) {
        float extra[WIDTH];
        load<WIDTH>(x + v * WIDTH, extra);
        find_max(v, extra);
    }
    update_amax(max, amax);
}

template <typename T, int WIDTH>
static enum status launch_rmsnorm_amax(const struct fused_amax *a, const struct fused_amax_io *io,
                                       struct queue *queue)
{
    enum { HELD = 2 };
    unsigned threads = block_size(ceil_div((size_t)a->C / WIDTH, HELD), MAX_BLOCK_SIZE);
    LAUNCH((rmsnorm_amax_kernel<T, WIDTH, HELD>), (unsigned)a->N, threads, 0, queue, a->C, a->eps,
           (const T *)io->x, (const T *)io->w_C, io->rstd_N, io->amax);
    return STATUS_OK;
}

/* --- launches --- */

/* Calls f.run(source) with the source that the op names. */
template <typename T, typename Call>
static enum status with_source(const struct fused_quantize *a, const struct fused_quantize_io *io,
                               const Call &call)
{
    const size_t C = (size_t)a->C;
    const T *x = (const T *)io->x, *w = (const T *)io->w_C, *dout = (const T *)io->dout_NF;
    bool wide = C % VECTOR == 0 && is_aligned(x) && is_aligned(w) && is_aligned(dout);
    switch (a->of) {
    case FUSED_TENSOR: return call.run(tensor_source<T>{x, C, wide});
    case FUSED_RMSNORM: return call.run(rmsnorm_source<T>{x, w, io->rstd_N, C, wide});
    case FUSED_SWIGLU: return call.run(swiglu_source<T>{x, C, wide});
    case FUSED_SWIGLU_GRAD: return call.run(swiglu_grad_source<T>{x, dout, C, wide});
    case FUSED_FP8: break; /* transpose_fp8 */
    }
    return STATUS_OK;
}

struct quantize_call {
    size_t rows, columns;
    enum float8 to;
    struct fp8_target target;
    struct scale_source scales;
    struct queue *queue;

    template <typename F, typename S> enum status launch(const S &source) const
    {
        size_t tiles = ceil_div(rows, SIDE) * ceil_div(columns, SIDE);
        if (tiles > INT32_MAX)
            FAIL(UNSUPPORTED, "quantize: %zu rows of %zu exceed the maximum grid size", rows,
                 columns);
        LAUNCH((fp8_quantize_kernel<F, S>), (unsigned)tiles, THREADS, 0, queue, rows, columns,
               source, target, scales);
        return STATUS_OK;
    }
    template <typename S> enum status run(const S &source) const
    {
        BUG_IF(!scales.given && !scales.find.amax);
        return to == E4M3 ? launch<struct e4m3>(source) : launch<struct e5m2>(source);
    }
};

/* `columns` of all parts. */
static struct fp8_target target_of(size_t rows, size_t columns, unsigned summed, bf16 *y,
                                   const struct queue *queue)
{
    struct fp8_target to = {};
    uint8_t *bytes = (uint8_t *)y, *transposed = bytes + rows * columns;
    if (!((const struct gpu_queue *)queue)->native_fp8) {
        to.values = y;
        return to;
    }
    if (!summed || summed & OVER_COLUMNS) to.row_major = bytes;
    if (!summed || summed & OVER_ROWS) to.column_major = transposed;
    to.wide_rows = columns % VECTOR == 0 && is_aligned(bytes);
    to.wide_columns = rows % VECTOR == 0 && is_aligned(transposed);
    return to;
}

extern "C" enum status GPU_NAME(fp8_quantize)(const struct quantize *a,
                                              const struct quantize_io *io, struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    size_t columns = a->columns ? a->columns : a->n, rows = a->n / columns;
    struct quantize_call call = {rows, columns, a->to, {}, {}, queue};
    call.target = target_of(rows, columns, a->summed, io->y_n, queue);
    call.scales.given = io->scale;
    bool wide = columns % VECTOR == 0 && is_aligned(io->x_n);
    if (a->dtype == F32)
        return call.run(tensor_source<float>{(const float *)io->x_n, columns, wide});
    return call.run(tensor_source<bf16>{(const bf16 *)io->x_n, columns, wide});
}

/* Without native FP8 there is one order.  x may be the target. */
static enum status transpose_fp8(const struct quantize_call &call, const void *x,
                                 struct queue *queue)
{
    const uint8_t *from = (const uint8_t *)x;
    const bool wide = call.columns % VECTOR == 0 && is_aligned(x);
    if (call.target.values == x) return STATUS_OK;
    if (call.target.values)
        return queue_copy(queue, call.target.values, x, call.rows * call.columns * sizeof(bf16));
    return call.to == E4M3
               ? call.launch<struct e4m3>(fp8_source<struct e4m3>{from, call.columns, wide})
               : call.launch<struct e5m2>(fp8_source<struct e5m2>{from, call.columns, wide});
}

extern "C" enum status GPU_NAME(fused_quantize)(const struct fused_quantize *a,
                                                const struct fused_quantize_io *io,
                                                struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t rows = (size_t)a->N, columns = (size_t)a->C;
    struct quantize_call call = {rows, columns, a->to, {}, {}, queue};
    call.target = target_of(rows, fused_columns(a->of, a->C), a->summed, io->y, queue);
    call.target.wide_rows = call.target.wide_rows && columns % VECTOR == 0; /* of each part */
    if (a->of == FUSED_FP8) return transpose_fp8(call, io->x, queue);
    call.scales = {io->scale, io->find, a->amaxes, float8_max(a->to), io->scale ? io->amax : NULL};
    return a->dtype == F32 ? with_source<float>(a, io, call) : with_source<bf16>(a, io, call);
}

struct amax_call {
    size_t rows, columns;
    float *amax;
    struct queue *queue;

    template <typename S> enum status run(const S &source) const
    {
        size_t blocks = ceil_div(rows * ceil_div(columns, VECTOR), THREADS);
        unsigned grid = (unsigned)(blocks < max_amax_blocks ? blocks : max_amax_blocks);
        LAUNCH(source_amax_kernel<S>, grid, THREADS, 0, queue, rows, columns, source, amax);
        return STATUS_OK;
    }
};

extern "C" enum status GPU_NAME(fused_amax)(const struct fused_amax *a,
                                            const struct fused_amax_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    if (a->of == FUSED_RMSNORM) {
        bool aligned =
            rows_are_aligned((size_t)a->C, a->dtype) && is_aligned(io->x) && is_aligned(io->w_C);
        BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_rmsnorm_amax, a, io, queue);
    }
    struct amax_call call = {(size_t)a->N, (size_t)a->C, io->amax, queue};
    struct fused_quantize op = {a->of, a->N, a->C, a->dtype, E4M3, 0, 0};
    struct fused_quantize_io inputs = {};
    inputs.x = io->x, inputs.dout_NF = io->dout_NF;
    return a->dtype == F32 ? with_source<float>(&op, &inputs, call)
                           : with_source<bf16>(&op, &inputs, call);
}
