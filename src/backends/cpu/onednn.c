/* onednn.c (cpu) -- a cached primitive is only pointed at other buffers.  `accumulate` is oneDNN's
 * sum post-op, which adds to what C holds.  Compiles with versions 2 and 3 of oneDNN. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/onednn.h"

#include "base/text.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

struct onednn_matmul {
    struct gemm_shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, scratch;
    size_t scratch_bytes;
    bool packs_itself; /* beyond the scratch memory */
};

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct onednn_matmul *matmuls;
    size_t count;
};

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t dnnl_ = (call);                                                              \
        if (dnnl_ != dnnl_success) FAIL(DEVICE, "oneDNN: %s: status %d", #call, (int)dnnl_);       \
    } while (0)

void onednn_limit_isa(const char *name)
{
    static const struct {
        const char *name;
        dnnl_cpu_isa_t isa;
    } limits[] = {{"avx2", dnnl_cpu_isa_avx2}, {"avx512", dnnl_cpu_isa_avx512_core_bf16}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (!strcmp(name, limits[i].name)) dnnl_set_max_cpu_isa(limits[i].isa);
}

enum status onednn_open(struct onednn **out)
{
    struct onednn *library = *out = heap(sizeof *library);
    TRY_DNNL(dnnl_engine_create(&library->engine, dnnl_cpu, 0));
    TRY_DNNL(dnnl_stream_create(&library->stream, library->engine, dnnl_stream_default_flags));
    return STATUS_OK;
}

static void destroy_matmul(struct onednn_matmul *p)
{
    dnnl_memory_t memories[] = {p->a, p->b, p->c, p->scratch};
    for (size_t i = 0; i < 4; i++)
        if (memories[i]) dnnl_memory_destroy(memories[i]);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
}

void onednn_close(struct onednn *library)
{
    if (!library) return;
    for (size_t i = 0; i < library->count; i++) destroy_matmul(&library->matmuls[i]);
    if (library->stream) dnnl_stream_destroy(library->stream);
    if (library->engine) dnnl_engine_destroy(library->engine);
    free(library->matmuls);
    free(library);
}

/* --- the calls that version 3 changed --- */

#if DNNL_VERSION_MAJOR < 3
#define dnnl_memory_desc_create_with_strides dnnl_memory_desc_init_by_strides

typedef const dnnl_memory_desc_t *memory_desc;

static memory_desc memory_desc_of(const dnnl_memory_desc_t *d) { return d; }
static void destroy_memory_desc(dnnl_memory_desc_t *d) { (void)d; }

static dnnl_status_t append_sum(dnnl_post_ops_t post) { return dnnl_post_ops_append_sum(post, 1); }

/* The k-th implementation that oneDNN offers. */
static dnnl_status_t create_implementation(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                                           const dnnl_memory_desc_t md[3],
                                           const_dnnl_primitive_attr_t attr, int k)
{
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_iterator_t each;
    dnnl_status_t bad = dnnl_matmul_desc_init(&matmul, &md[0], &md[1], NULL, &md[2]);
    if (!bad) bad = dnnl_primitive_desc_iterator_create(&each, &matmul, attr, engine, NULL);
    if (bad) return bad;
    for (int i = 0; i < k && !bad; i++) bad = dnnl_primitive_desc_iterator_next(each);
    if (!bad) *desc = dnnl_primitive_desc_iterator_fetch(each);
    dnnl_primitive_desc_iterator_destroy(each);
    return bad;
}
#else
typedef const_dnnl_memory_desc_t memory_desc;

static memory_desc memory_desc_of(const dnnl_memory_desc_t *d) { return *d; }

static void destroy_memory_desc(dnnl_memory_desc_t *d)
{
    if (*d) dnnl_memory_desc_destroy(*d);
}

static dnnl_status_t append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t create_implementation(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                                           const dnnl_memory_desc_t md[3],
                                           const_dnnl_primitive_attr_t attr, int k)
{
    dnnl_status_t bad =
        dnnl_matmul_primitive_desc_create(desc, engine, md[0], md[1], NULL, md[2], attr);
    if (bad) return bad;
    for (int i = 0; i < k && !bad; i++) bad = dnnl_primitive_desc_next_impl(*desc);
    if (bad) dnnl_primitive_desc_destroy(*desc);
    return bad;
}
#endif

/* --- one GEMM --- */

/* A dense [rows, columns] matrix; transposed: stored as [columns, rows]. */
static dnnl_status_t describe_matrix(dnnl_memory_desc_t *d, int rows, int columns, bool transposed)
{
    dnnl_dims_t dims = {rows, columns}, strides = {columns, 1};
    if (transposed) strides[0] = 1, strides[1] = rows;
    return dnnl_memory_desc_create_with_strides(d, 2, dims, dnnl_f32, strides);
}

/* On Intel processors "gemm:jit" is usually faster than the first implementation that oneDNN offers
 * (docs/cpu-kernels.md); others use oneDNN's order. */
static bool is_preferred(const_dnnl_primitive_desc_t desc)
{
#if defined(__x86_64__)
    const char *name = "";
    dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    if (__builtin_cpu_is("intel")) return !strcmp(name, "gemm:jit");
#endif
    (void)desc;
    return true;
}

/* The first preferred implementation, or else the first of all. */
static dnnl_status_t choose_implementation(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                                           const dnnl_memory_desc_t md[3],
                                           const_dnnl_primitive_attr_t attr)
{
    for (int k = 0; !create_implementation(desc, engine, md, attr, k); k++) {
        if (is_preferred(*desc)) return dnnl_success;
        dnnl_primitive_desc_destroy(*desc);
    }
    return create_implementation(desc, engine, md, attr, 0);
}

static dnnl_status_t create_desc(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                                 const struct gemm_shape *s, const dnnl_memory_desc_t md[3])
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_status_t bad = dnnl_primitive_attr_create(&attr);
    if (!bad) bad = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!bad) bad = dnnl_post_ops_create(&post);
    if (!bad && s->accumulate) bad = append_sum(post);
    if (!bad) bad = dnnl_primitive_attr_set_post_ops(attr, post);
    if (!bad) bad = choose_implementation(desc, engine, md, attr);
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return bad;
}

static dnnl_status_t create_primitive(struct onednn_matmul *p, dnnl_engine_t engine,
                                      const_dnnl_primitive_desc_t desc)
{
    const char *kernel = "";
    memory_desc scratchpad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = dnnl_memory_desc_get_size(scratchpad);
    dnnl_status_t bad = dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &kernel);
    p->packs_itself = !bad && !strncmp(kernel, "gemm", 4);
    if (!bad) bad = dnnl_primitive_create(&p->primitive, desc);
    if (!bad) bad = dnnl_memory_create(&p->scratch, scratchpad, engine, DNNL_MEMORY_NONE);
    return bad;
}

static enum status make_matmul(struct onednn *library, const struct gemm_shape *s,
                               struct onednn_matmul *p)
{
    dnnl_engine_t engine = library->engine;
    dnnl_memory_desc_t md[3] = {0};
    dnnl_primitive_desc_t desc = NULL;
    *p = (struct onednn_matmul){.shape = *s};
    dnnl_status_t bad = describe_matrix(&md[0], s->M, s->K, s->transpose_a);
    if (!bad) bad = describe_matrix(&md[1], s->K, s->N, s->transpose_b);
    if (!bad) bad = describe_matrix(&md[2], s->M, s->N, false);
    if (!bad) bad = create_desc(&desc, engine, s, md);
    if (!bad) bad = create_primitive(p, engine, desc);
    dnnl_memory_t *memories[] = {&p->a, &p->b, &p->c};
    for (int i = 0; i < 3 && !bad; i++)
        bad = dnnl_memory_create(memories[i], memory_desc_of(&md[i]), engine, DNNL_MEMORY_NONE);
    if (desc) dnnl_primitive_desc_destroy(desc);
    for (int i = 0; i < 3; i++) destroy_memory_desc(&md[i]);
    if (bad) FAIL(DEVICE, "oneDNN: f32 GEMM with M=%d N=%d K=%d: status %d", s->M, s->N, s->K, bad);
    return STATUS_OK;
}

static bool same_shape(const struct gemm_shape *x, const struct gemm_shape *y)
{
    return x->M == y->M && x->N == y->N && x->K == y->K && x->transpose_a == y->transpose_a &&
           x->transpose_b == y->transpose_b && x->accumulate == y->accumulate;
}

static enum status find_matmul(struct onednn *library, const struct gemm_shape *s,
                               struct onednn_matmul **out)
{
    for (size_t i = 0; i < library->count; i++)
        if (same_shape(&library->matmuls[i].shape, s)) {
            *out = &library->matmuls[i];
            return STATUS_OK;
        }
    struct onednn_matmul created;
    enum status st = make_matmul(library, s, &created);
    if (st) {
        destroy_matmul(&created);
        return st;
    }
    library->matmuls = heap_grow(library->matmuls, library->count + 1, sizeof *library->matmuls);
    library->matmuls[library->count] = created;
    *out = &library->matmuls[library->count++];
    return STATUS_OK;
}

static void copy_f32(float *to, const float *from, size_t n, int num_threads)
{
#pragma omp parallel for simd schedule(static) num_threads(num_threads)
    for (size_t i = 0; i < n; i++) to[i] = from[i];
}

/* What the kernel allocates during a GEMM, and the code of the library that it loads.  gemm:jit, of
 * Intel's processors, packs operands in memory of its own: a panel of each, at most 9984 rows and
 * 384 columns.  An estimate, as its blocks depend on the caches.  brg:avx512_core, of AMD's, packs
 * them in the scratch memory. */
static size_t packing_bytes(const struct onednn_matmul *p)
{
    enum { CODE = 2 << 20, MAX_ROWS = 9984, DEPTH = 384, SMALL_SIDE = 384 };
    const struct gemm_shape *s = &p->shape;
    if (!p->packs_itself) return 0;
    size_t rows = (size_t)(s->M > s->N ? s->M : s->N), depth = s->K < DEPTH ? (size_t)s->K : DEPTH;
    if (rows > MAX_ROWS) rows = MAX_ROWS;
    return CODE + depth * (rows + SMALL_SIDE) * sizeof(float);
}

enum status onednn_gemm(struct onednn *library, const struct gemm_shape *s,
                        const struct gemm_buffers *io, struct queue *queue)
{
    BUG_IF(s->dtype != F32 || s->out != F32 || s->scaled);
    struct onednn_matmul *p;
    TRY(find_matmul(library, s, &p));
    size_t mark = arena_mark(&queue->scratch);
    void *scratch = arena_alloc(&queue->scratch, p->scratch_bytes, 1);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) {
        size_t bytes = packing_bytes(p);
        if (bytes > queue->library_bytes) queue->library_bytes = bytes;
        return STATUS_OK;
    }
    if (s->accumulate && io->d != io->c)
        copy_f32(io->c, io->d, (size_t)s->M * (size_t)s->N, queue->num_threads);
    TRY_DNNL(dnnl_memory_set_data_handle(p->a, (void *)(uintptr_t)io->a));
    TRY_DNNL(dnnl_memory_set_data_handle(p->b, (void *)(uintptr_t)io->b));
    TRY_DNNL(dnnl_memory_set_data_handle(p->c, io->c));
    TRY_DNNL(dnnl_memory_set_data_handle(p->scratch, scratch));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, p->a},
                                         {DNNL_ARG_WEIGHTS, p->b},
                                         {DNNL_ARG_DST, p->c},
                                         {DNNL_ARG_SCRATCHPAD, p->scratch}};
    TRY_DNNL(dnnl_primitive_execute(p->primitive, library->stream, 4, arguments));
    TRY_DNNL(dnnl_stream_wait(library->stream));
    return STATUS_OK;
}

void onednn_version(struct text *version)
{
    const dnnl_version_t *v = dnnl_version();
    text_clear(version);
    text_addf(version, "%d.%d.%d", v->major, v->minor, v->patch);
}
