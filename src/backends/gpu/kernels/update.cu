/* update.cu -- AdamW and other updates over flat ranges; memory-bound, every element is read and
 * written once. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/elements.h"
#include "backends/gpu/kernels/stochastic.h"

extern "C" {
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"
}

#include <math.h>
#include <string.h>
#if !defined(GPU_CUDA)
#define __grid_constant__
#endif

/* What all parts of an AdamW call have in common. */
struct adamw_common {
    struct adamw_coefficients c; /* keep and rate are unused here: struct adamw_kind has them */
    uint64_t seed, step;         /* of stochastic rounding */
};
/* What parts have that are of one kind. */
struct adamw_kind {
    float keep, rate; /* as in struct adamw_coefficients */
    uint64_t run, stride;
};
/* A part is split into chunks, of which the last has `tail` elements. */
struct adamw_entry {
    uint64_t begin, position;
    unsigned first_chunk;
    uint16_t tail, kind;
};
enum { ADAMW_CHUNK = 4096, MAX_KINDS = 16 };
/* A kernel argument: so a launch needs no copy to the device. */
struct adamw_table {
    struct adamw_entry parts[ADAMW_MAX_PARTS];
    struct adamw_kind kinds[MAX_KINDS];
    unsigned num_parts, num_kinds, chunks;
};
struct adamw_buffers {
    float *w;
    void *m, *v;
    const void *g;
    void *copy;
    uint16_t *low;
};

/* Elements at..at+WIDTH-1, of which the first is the i-th of its part. */
struct adamw_place {
    size_t at, i;
    const struct adamw_entry *part;
    const struct adamw_kind *kind;
};

template <int WIDTH>
static __device__ void store_second_moments(const struct adamw_common &r,
                                            const struct adamw_place &p, const float (&v)[WIDTH],
                                            bf16 *v_n)
{
    const struct random_position random = {RNG_MOMENTS,      r.seed,      r.step,
                                           p.part->position, p.kind->run, p.kind->stride};
    store_stochastic<WIDTH>(random, v, p.i, v_n + (p.at - p.i));
}

template <int WIDTH>
static __device__ void store_second_moments(const struct adamw_common &,
                                            const struct adamw_place &p, const float (&v)[WIDTH],
                                            float *v_n)
{
    store<WIDTH>(v, v_n + p.at);
}

template <int WIDTH>
static __device__ __forceinline__ void load_split(const bf16 *half_n, const uint16_t *low_n,
                                                  float (&w)[WIDTH])
{
    uint16_t half[WIDTH], low[WIDTH];
    load_bits<WIDTH>(half_n, half), load_bits<WIDTH>(low_n, low);
    for (int i = 0; i < WIDTH; i++) w[i] = join_split(half[i], low[i]);
}

template <int WIDTH>
static __device__ __forceinline__ void store_split(const float (&w)[WIDTH], bf16 *half_n,
                                                   uint16_t *low_n)
{
    uint16_t half[WIDTH], low[WIDTH];
    for (int i = 0; i < WIDTH; i++) make_split(w[i], &half[i], &low[i]);
    store_bits<WIDTH>(half, half_n), store_bits<WIDTH>(low, low_n);
}

/* M: type of the moments; G: of the gradients; T: of the weights' copy.  SPLIT: the copy is the
 * upper half of split master weights. */
template <int WIDTH, typename M, typename G, typename T, bool SPLIT>
static __device__ void adamw_step(const struct adamw_common &r, const struct adamw_buffers &b,
                                  const struct adamw_place &p)
{
    const size_t at = p.at;
    const struct adamw_coefficients &c = r.c;
    const float keep = p.kind->keep, rate = p.kind->rate;
    float w[WIDTH], m[WIDTH], v[WIDTH], grad[WIDTH];
    M *m_n = (M *)b.m, *v_n = (M *)b.v;
    if constexpr (SPLIT)
        load_split<WIDTH>((const bf16 *)b.copy + at, b.low + at, w);
    else
        load<WIDTH>(b.w + at, w);
    load<WIDTH>(m_n + at, m), load<WIDTH>(v_n + at, v), load<WIDTH>((const G *)b.g + at, grad);
    for (int i = 0; i < WIDTH; i++) {
        float g = grad[i] * c.scale;
        m[i] = fmaf(c.new1, g, c.beta1 * m[i]);
        v[i] = fmaf(c.new2 * g, g, c.beta2 * v[i]);
        w[i] = fmaf(keep, w[i], -(rate * m[i] / fmaf(sqrtf(v[i]), c.root, c.eps)));
    }
    store<WIDTH>(m, m_n + at);
    store_second_moments<WIDTH>(r, p, v, v_n);
    if constexpr (SPLIT) {
        store_split<WIDTH>(w, (bf16 *)b.copy + at, b.low + at);
    } else {
        store<WIDTH>(w, b.w + at);
        if (b.copy) store<WIDTH>(w, (T *)b.copy + at);
    }
}

/* The part that has the chunk. */
static __device__ unsigned find_part(const struct adamw_table &t, unsigned chunk)
{
    unsigned low = 0, high = t.num_parts;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (t.parts[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The kernel's first argument where the launch stored it.  hipcc of LLVM 15 copies an argument with
 * a variable index to the private memory of every thread. */
template <typename T> static __device__ const T &first_argument(const T &x)
{
#if defined(GPU_HIP)
    return *(const T *)__builtin_amdgcn_kernarg_segment_ptr();
#else
    return x;
#endif
}

/* A block takes chunks of any parts.  WIDE: the buffers are aligned, and so are the vectors of
 * parts that begin at a multiple of WIDTH. */
template <int WIDTH, typename M, typename G, typename T, bool SPLIT, bool WIDE>
__global__ static void __launch_bounds__(BLOCK)
    adamw_kernel(const __grid_constant__ struct adamw_table argument, struct adamw_common r,
                 struct adamw_buffers b)
{
    const struct adamw_table &t = first_argument(argument);
    for (unsigned chunk = blockIdx.x; chunk < t.chunks; chunk += gridDim.x) {
        const unsigned index = find_part(t, chunk), in_part = chunk - t.parts[index].first_chunk;
        const unsigned end = index + 1 < t.num_parts ? t.parts[index + 1].first_chunk : t.chunks;
        const int n = chunk + 1 == end ? t.parts[index].tail : (int)ADAMW_CHUNK;
        struct adamw_place p = {0, 0, &t.parts[index], &t.kinds[t.parts[index].kind]};
        const size_t i = (size_t)in_part * ADAMW_CHUNK, begin = p.part->begin;
        const int vectors = WIDE && begin % WIDTH == 0 ? n / WIDTH : 0;
        for (int k = (int)threadIdx.x; k < vectors; k += BLOCK) {
            p.i = i + (size_t)k * WIDTH, p.at = begin + p.i;
            adamw_step<WIDTH, M, G, T, SPLIT>(r, b, p);
        }
        for (int k = vectors * WIDTH + (int)threadIdx.x; k < n; k += BLOCK) {
            p.i = i + (size_t)k, p.at = begin + p.i;
            adamw_step<1, M, G, T, SPLIT>(r, b, p);
        }
    }
}

template <typename M, typename G, typename T, bool SPLIT>
static enum status launch_adamw(const struct adamw_common &r, const struct adamw_table &t,
                                const struct adamw_buffers &b, struct queue *queue)
{
    enum { NARROW = sizeof(T) < 4 || sizeof(M) < 4 || sizeof(G) < 4, WIDTH = NARROW ? 8 : 4 };
    static_assert(sizeof r + sizeof t + sizeof b <= 4096, "kernel arguments");
    bool wide = is_aligned(b.w) && is_aligned(b.m) && is_aligned(b.v) && is_aligned(b.g) &&
                is_aligned(b.copy) && is_aligned(b.low);
    unsigned grid = t.chunks < max_grid ? t.chunks : max_grid;
    if (wide)
        LAUNCH((adamw_kernel<WIDTH, M, G, T, SPLIT, true>), grid, BLOCK, 0, queue, t, r, b);
    else
        LAUNCH((adamw_kernel<WIDTH, M, G, T, SPLIT, false>), grid, BLOCK, 0, queue, t, r, b);
    return STATUS_OK;
}

template <typename M, typename G>
static enum status launch_adamw_moments(const struct adamw *a, const struct adamw_common &r,
                                        const struct adamw_table &t, const struct adamw_buffers &b,
                                        struct queue *queue)
{
    if (a->split) return launch_adamw<M, G, bf16, true>(r, t, b, queue);
    return a->copy_dtype == F32 ? launch_adamw<M, G, float, false>(r, t, b, queue)
                                : launch_adamw<M, G, bf16, false>(r, t, b, queue);
}

template <typename G>
static enum status launch_adamw_gradients(const struct adamw *a, const struct adamw_common &r,
                                          const struct adamw_table &t,
                                          const struct adamw_buffers &b, struct queue *queue)
{
    return a->moments == F32 ? launch_adamw_moments<float, G>(a, r, t, b, queue)
                             : launch_adamw_moments<bf16, G>(a, r, t, b, queue);
}

/* The index of the kind, which is added if it is new; MAX_KINDS: no room. */
static unsigned find_kind(struct adamw_table *t, const struct adamw_kind &kind)
{
    unsigned i = 0;
    while (i < t->num_kinds && memcmp(&t->kinds[i], &kind, sizeof kind) != 0) i++;
    if (i == t->num_kinds && i < MAX_KINDS) t->kinds[t->num_kinds++] = kind;
    return i;
}

/* Returns false if the table has no room for the part. */
static bool add_part(struct adamw_table *t, const struct adamw &all, const struct adamw_part &p)
{
    struct adamw a = all;
    a.lr = p.lr, a.weight_decay = p.weight_decay;
    const struct adamw_coefficients c = adamw_coefficients_of(&a);
    struct adamw_kind kind = {c.keep, c.rate, p.run, p.stride};
    size_t chunks = ceil_div(p.count, ADAMW_CHUNK);
    if (!p.count) return true;
    unsigned index = t->num_parts < ADAMW_MAX_PARTS ? find_kind(t, kind) : (unsigned)MAX_KINDS;
    if (index == MAX_KINDS) return false;
    t->parts[t->num_parts++] = {p.begin, p.position, t->chunks,
                                (uint16_t)(p.count - (chunks - 1) * ADAMW_CHUNK), (uint16_t)index};
    t->chunks += (unsigned)chunks;
    return true;
}

static enum status update_parts(const struct adamw *a, const struct adamw_common &r,
                                struct adamw_table *t, const struct adamw_buffers &b,
                                struct queue *queue)
{
    if (t->chunks)
        TRY(a->gradients == BF16 ? launch_adamw_gradients<bf16>(a, r, *t, b, queue)
                                 : launch_adamw_gradients<float>(a, r, *t, b, queue));
    t->num_parts = t->num_kinds = t->chunks = 0;
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(adamw)(const struct adamw *a, const struct adamw_io *io,
                                       struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    const struct adamw_common r = {adamw_coefficients_of(a), a->seed, (uint64_t)a->step};
    const struct adamw_buffers b = {io->w_n, io->m_n, io->v_n, io->g_n, io->copy_n, io->low_n};
    const struct adamw_part whole = {0,           a->n,   a->lr,    a->weight_decay,
                                     a->position, a->run, a->stride};
    struct adamw_table t = {};
    for (int i = 0; i < (a->num_parts ? a->num_parts : 1); i++) {
        const struct adamw_part &p = a->num_parts ? a->parts[i] : whole;
        if (add_part(&t, *a, p)) continue;
        TRY(update_parts(a, r, &t, b, queue));
        add_part(&t, *a, p);
    }
    TRY(update_parts(a, r, &t, b, queue));
    return STATUS_OK;
}

template <int WIDTH>
__global__ static void __launch_bounds__(BLOCK)
    unsplit_kernel(size_t n, const bf16 *half_n, const uint16_t *low_n, float *y_n)
{
    for_elements<WIDTH>(n, [&](auto vector, size_t at) {
        enum { COUNT = decltype(vector)::value };
        float y[COUNT];
        load_split<COUNT>(half_n + at, low_n + at, y);
        store<COUNT>(y, y_n + at);
    });
}

extern "C" enum status GPU_NAME(unsplit)(const struct unsplit *a, const struct unsplit_io *io,
                                         struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    if (is_aligned(io->half_n) && is_aligned(io->low_n) && is_aligned(io->y_n))
        LAUNCH(unsplit_kernel<8>, element_blocks(a->n, 8), BLOCK, 0, queue, a->n, io->half_n,
               io->low_n, io->y_n);
    else
        LAUNCH(unsplit_kernel<1>, element_blocks(a->n, 1), BLOCK, 0, queue, a->n, io->half_n,
               io->low_n, io->y_n);
    return STATUS_OK;
}

template <int WIDTH>
__global__ static void __launch_bounds__(BLOCK)
    axpby_kernel(size_t n, float alpha, float beta, const float *x_n, const float *y_n, float *z_n)
{
    for_elements<WIDTH>(n, [&](auto vector, size_t at) {
        enum { COUNT = decltype(vector)::value };
        float x[COUNT], y[COUNT] = {};
        load<COUNT>(x_n + at, x);
        if (beta != 0) load<COUNT>(y_n + at, y);
        for (int i = 0; i < COUNT; i++) x[i] = fmaf(alpha, x[i], beta != 0 ? beta * y[i] : 0);
        store<COUNT>(x, z_n + at);
    });
}

extern "C" enum status GPU_NAME(axpby)(const struct axpby *a, const struct axpby_io *io,
                                       struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    const float alpha = (float)a->alpha, beta = (float)a->beta;
    if (is_aligned(io->x_n) && is_aligned(io->y_n) && is_aligned(io->z_n))
        LAUNCH(axpby_kernel<4>, element_blocks(a->n, 4), BLOCK, 0, queue, a->n, alpha, beta,
               io->x_n, io->y_n, io->z_n);
    else
        LAUNCH(axpby_kernel<1>, element_blocks(a->n, 1), BLOCK, 0, queue, a->n, alpha, beta,
               io->x_n, io->y_n, io->z_n);
    return STATUS_OK;
}

template <int WIDTH, typename T>
__global__ static void __launch_bounds__(BLOCK)
    matrix_polynomial_kernel(unsigned n, float a, float b, float c, const float *square_nn, T *x_nn)
{
    for_elements<WIDTH>((size_t)n * n, [&](auto vector, size_t at) {
        enum { COUNT = decltype(vector)::value };
        float x[COUNT], square[COUNT];
        unsigned past = (unsigned)(at % (n + 1)); /* elements since the last on the diagonal */
        load<COUNT>(x_nn + at, x), load<COUNT>(square_nn + at, square);
        for (int i = 0; i < COUNT; i++) {
            x[i] = fmaf(c, square[i], b * x[i]);
            if (past == 0) x[i] += a;
            past = past == n ? 0 : past + 1;
        }
        store<COUNT>(x, x_nn + at);
    });
}

template <typename T>
static enum status launch_matrix_polynomial(const struct matrix_polynomial *p, const float *square,
                                            T *x, struct queue *queue)
{
    enum { WIDTH = sizeof(T) < 4 ? 8 : 4 };
    const float a = (float)p->a, b = (float)p->b, c = (float)p->c;
    const size_t all = (size_t)p->n * (size_t)p->n;
    if (is_aligned(square) && is_aligned(x))
        LAUNCH((matrix_polynomial_kernel<WIDTH, T>), element_blocks(all, WIDTH), BLOCK, 0, queue,
               (unsigned)p->n, a, b, c, square, x);
    else
        LAUNCH((matrix_polynomial_kernel<1, T>), element_blocks(all, 1), BLOCK, 0, queue,
               (unsigned)p->n, a, b, c, square, x);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(matrix_polynomial)(const struct matrix_polynomial *a,
                                                   const struct matrix_polynomial_io *io,
                                                   struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    return a->dtype == F32 ? launch_matrix_polynomial(a, io->square_nn, (float *)io->x_nn, queue)
                           : launch_matrix_polynomial(a, io->square_nn, (bf16 *)io->x_nn, queue);
}

template <int WIDTH, bool SPLIT>
__global__ static void __launch_bounds__(BLOCK)
    update_ema_kernel(size_t n, float rate, struct update_ema_io b)
{
    for_elements<WIDTH>(n, [&](auto vector, size_t at) {
        enum { COUNT = decltype(vector)::value };
        float w[COUNT], ema[COUNT];
        load<COUNT>(b.ema_n + at, ema);
        if constexpr (SPLIT)
            load_split<COUNT>(b.half_n + at, b.low_n + at, w);
        else
            load<COUNT>(b.w_n + at, w);
        for (int i = 0; i < COUNT; i++) ema[i] = fmaf(rate, w[i] - ema[i], ema[i]);
        store<COUNT>(ema, b.ema_n + at);
    });
}

template <bool SPLIT>
static enum status launch_update_ema(const struct update_ema *a, const struct update_ema_io *io,
                                     struct queue *queue)
{
    enum { WIDTH = SPLIT ? 8 : 4 };
    const float rate = (float)(1 - a->decay);
    if (is_aligned(io->w_n) && is_aligned(io->half_n) && is_aligned(io->low_n) &&
        is_aligned(io->ema_n))
        LAUNCH((update_ema_kernel<WIDTH, SPLIT>), element_blocks(a->n, WIDTH), BLOCK, 0, queue,
               a->n, rate, *io);
    else
        LAUNCH((update_ema_kernel<1, SPLIT>), element_blocks(a->n, 1), BLOCK, 0, queue, a->n, rate,
               *io);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(update_ema)(const struct update_ema *a,
                                            const struct update_ema_io *io, struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    return a->split ? launch_update_ema<true>(a, io, queue)
                    : launch_update_ema<false>(a, io, queue);
}

/* T: type of the weights' copy. */
template <int WIDTH, typename T, bool SPLIT>
__global__ static void __launch_bounds__(BLOCK)
    apply_update_kernel(size_t n, float keep, float rate, struct apply_update_io b)
{
    for_elements<WIDTH>(n, [&](auto vector, size_t at) {
        enum { COUNT = decltype(vector)::value };
        float w[COUNT], u[COUNT];
        load<COUNT>(b.u_n + at, u);
        if constexpr (SPLIT)
            load_split<COUNT>((const bf16 *)b.copy_n + at, b.low_n + at, w);
        else
            load<COUNT>(b.w_n + at, w);
        for (int i = 0; i < COUNT; i++) w[i] = fmaf(keep, w[i], -(rate * u[i]));
        if constexpr (SPLIT) {
            store_split<COUNT>(w, (bf16 *)b.copy_n + at, b.low_n + at);
        } else {
            store<COUNT>(w, b.w_n + at);
            if (b.copy_n) store<COUNT>(w, (T *)b.copy_n + at);
        }
    });
}

template <typename T, bool SPLIT>
static enum status launch_apply_update(const struct apply_update *a,
                                       const struct apply_update_io *io, struct queue *queue)
{
    enum { WIDTH = SPLIT || sizeof(T) < 4 ? 8 : 4 };
    const float keep = (float)a->keep, rate = (float)a->rate;
    if (is_aligned(io->w_n) && is_aligned(io->u_n) && is_aligned(io->copy_n) &&
        is_aligned(io->low_n))
        LAUNCH((apply_update_kernel<WIDTH, T, SPLIT>), element_blocks(a->n, WIDTH), BLOCK, 0, queue,
               a->n, keep, rate, *io);
    else
        LAUNCH((apply_update_kernel<1, T, SPLIT>), element_blocks(a->n, 1), BLOCK, 0, queue, a->n,
               keep, rate, *io);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(apply_update)(const struct apply_update *a,
                                              const struct apply_update_io *io, struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    if (a->split) return launch_apply_update<bf16, true>(a, io, queue);
    return a->copy_dtype == F32 ? launch_apply_update<float, false>(a, io, queue)
                                : launch_apply_update<bf16, false>(a, io, queue);
}
