/* product.c (cpu) -- calling a compiled product only points it at other memory.  `accumulate` is
 * oneDNN's sum post-op, which adds to what is in C. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/product.h"

#include "backends/cpu/queue.h"
#include "base/text.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

struct product {
    struct product_shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, scratch;
    size_t scratch_bytes;
};

struct products {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct product *all;
    size_t count;
};

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t dnnl_ = (call);                                                              \
        if (dnnl_ != dnnl_success) FAIL(DEVICE, "oneDNN: %s: status %d", #call, (int)dnnl_);       \
    } while (0)

enum status products_open(struct products **out)
{
    struct products *p = *out = heap(sizeof *p);
    TRY_DNNL(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
    TRY_DNNL(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
    return STATUS_OK;
}

static void destroy(struct product *p)
{
    dnnl_memory_t memories[] = {p->a, p->b, p->c, p->scratch};
    for (size_t i = 0; i < 4; i++)
        if (memories[i]) dnnl_memory_destroy(memories[i]);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
}

void products_close(struct products *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->count; i++) destroy(&p->all[i]);
    if (p->stream) dnnl_stream_destroy(p->stream);
    if (p->engine) dnnl_engine_destroy(p->engine);
    free(p->all);
    free(p);
}

/* A dense [rows, columns] matrix; transposed: stored as [columns, rows]. */
static enum status describe(dnnl_memory_desc_t *d, int rows, int columns, bool transposed)
{
    dnnl_dims_t dims = {rows, columns}, strides = {columns, 1};
    if (transposed) strides[0] = 1, strides[1] = rows;
    TRY_DNNL(dnnl_memory_desc_init_by_strides(d, 2, dims, dnnl_f32, strides));
    return STATUS_OK;
}

/* On Intel's processors most products are 4 to 17 % faster by "gemm:jit" than by what is first in
 * the library's own order, which others get. */
static bool is_preferred(const_dnnl_primitive_desc_t made)
{
#if defined(__x86_64__)
    const char *name = "";
    dnnl_primitive_desc_query(made, dnnl_query_impl_info_str, 0, &name);
    if (__builtin_cpu_is("intel")) return !strcmp(name, "gemm:jit");
#endif
    (void)made;
    return true;
}

/* The first of its implementations that is preferred, or else the very first. */
static enum status choose(dnnl_primitive_desc_t *made, const struct products *all,
                          const dnnl_matmul_desc_t *matmul, const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_iterator_t each;
    TRY_DNNL(dnnl_primitive_desc_iterator_create(&each, matmul, attr, all->engine, NULL));
    *made = dnnl_primitive_desc_iterator_fetch(each);
    while (!is_preferred(*made) && dnnl_primitive_desc_iterator_next(each) == dnnl_success) {
        dnnl_primitive_desc_t next = dnnl_primitive_desc_iterator_fetch(each);
        bool taken = is_preferred(next);
        dnnl_primitive_desc_destroy(taken ? *made : next);
        if (taken) *made = next;
    }
    dnnl_primitive_desc_iterator_destroy(each);
    return STATUS_OK;
}

static enum status compile(dnnl_primitive_desc_t *made, const struct products *all,
                           const struct product_shape *s, const dnnl_memory_desc_t md[3])
{
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    TRY_DNNL(dnnl_matmul_desc_init(&matmul, &md[0], &md[1], NULL, &md[2]));
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    TRY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    TRY_DNNL(dnnl_post_ops_create(&post));
    if (s->accumulate) TRY_DNNL(dnnl_post_ops_append_sum(post, 1));
    TRY_DNNL(dnnl_primitive_attr_set_post_ops(attr, post));
    TRY(choose(made, all, &matmul, attr));
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    return STATUS_OK;
}

static enum status make(struct products *all, const struct product_shape *s, struct product *p)
{
    dnnl_memory_desc_t md[3];
    dnnl_primitive_desc_t made;
    *p = (struct product){.shape = *s};
    TRY(describe(&md[0], s->M, s->K, s->transpose_a));
    TRY(describe(&md[1], s->K, s->N, s->transpose_b));
    TRY(describe(&md[2], s->M, s->N, false));
    TRY(compile(&made, all, s, md));
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(made, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = dnnl_memory_desc_get_size(pad);
    dnnl_status_t bad = dnnl_primitive_create(&p->primitive, made);
    if (!bad) bad = dnnl_memory_create(&p->scratch, pad, all->engine, DNNL_MEMORY_NONE);
    dnnl_memory_t *memories[] = {&p->a, &p->b, &p->c};
    for (int i = 0; i < 3 && !bad; i++)
        bad = dnnl_memory_create(memories[i], &md[i], all->engine, DNNL_MEMORY_NONE);
    dnnl_primitive_desc_destroy(made);
    if (bad) FAIL(DEVICE, "oneDNN: a product of %d x %d x %d: status %d", s->M, s->N, s->K, bad);
    return STATUS_OK;
}

static bool same(const struct product_shape *x, const struct product_shape *y)
{
    return x->M == y->M && x->N == y->N && x->K == y->K && x->transpose_a == y->transpose_a &&
           x->transpose_b == y->transpose_b && x->accumulate == y->accumulate;
}

static enum status find(struct products *all, const struct product_shape *s, struct product **out)
{
    for (size_t i = 0; i < all->count; i++)
        if (same(&all->all[i].shape, s)) {
            *out = &all->all[i];
            return STATUS_OK;
        }
    struct product fresh;
    enum status st = make(all, s, &fresh);
    if (st) {
        destroy(&fresh);
        return st;
    }
    all->all = heap_grow(all->all, all->count + 1, sizeof *all->all);
    all->all[all->count] = fresh;
    *out = &all->all[all->count++];
    return STATUS_OK;
}

static void copy(float *to, const float *from, size_t n, int num_threads)
{
#pragma omp parallel for simd schedule(static) num_threads(num_threads)
    for (size_t i = 0; i < n; i++) to[i] = from[i];
}

enum status product_multiply(const struct product_shape *s, const struct product_io *io,
                             struct queue *on)
{
    BUG_IF(s->dtype != F32 || s->out != F32 || s->scaled);
    struct products *all = ((struct cpu_queue *)on)->products;
    struct product *p;
    TRY(find(all, s, &p));
    size_t mark = arena_mark(&on->scratch);
    void *scratch = arena_take(&on->scratch, p->scratch_bytes, 1);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    if (s->accumulate && io->d != io->c)
        copy(io->c, io->d, (size_t)s->M * (size_t)s->N, on->num_threads);
    TRY_DNNL(dnnl_memory_set_data_handle(p->a, (void *)(uintptr_t)io->a));
    TRY_DNNL(dnnl_memory_set_data_handle(p->b, (void *)(uintptr_t)io->b));
    TRY_DNNL(dnnl_memory_set_data_handle(p->c, io->c));
    TRY_DNNL(dnnl_memory_set_data_handle(p->scratch, scratch));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, p->a},
                                         {DNNL_ARG_WEIGHTS, p->b},
                                         {DNNL_ARG_DST, p->c},
                                         {DNNL_ARG_SCRATCHPAD, p->scratch}};
    TRY_DNNL(dnnl_primitive_execute(p->primitive, all->stream, 4, arguments));
    TRY_DNNL(dnnl_stream_wait(all->stream));
    return STATUS_OK;
}

void product_library_version(struct text *version)
{
    const dnnl_version_t *v = dnnl_version();
    text_clear(version);
    text_addf(version, "%d.%d.%d", v->major, v->minor, v->patch);
}
