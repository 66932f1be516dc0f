/* The library is our own kernels without parts (flash_library.h), in the emulator. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/attention_part.h"

#include "test.h"

#include "backends/cpu/cpu.h"
#include "backends/gpu/flash_library.h"
#include "backends/gpu/gpu.h"
#include "base/rng.h"
#include "tensor/device.h"

enum { B = 2, T = 20, H = 4, G = 2, K = 24, Q = H * K, P = G * K, C = Q + 2 * P, N = B * T };

struct buffers {
    bf16 *qkv, *kv, *out, *dout;
    float *sum, *lse, *dq, *dkv;
    int32_t *start, *end;
};

static struct attention shape_of(struct attention_rectangle r, bool causal,
                                 enum attention_keys keys)
{
    return (struct attention){.B = B,
                              .T = T,
                              .S = T,
                              .H = H,
                              .G = G,
                              .K = K,
                              .q_stride = C,
                              .kv_stride = 2 * P,
                              .scale = 0.2f,
                              .causal = causal,
                              .dtype = BF16,
                              .keys = keys,
                              .rectangle = r};
}

static struct attention_fwd forward_of(const struct buffers *x)
{
    return (struct attention_fwd){x->qkv, x->kv, x->kv + P, x->start, x->end, x->sum, x->lse};
}

static struct attention_bwd backward_of(const struct buffers *x)
{
    return (struct attention_bwd){.q_BTHK = x->qkv,
                                  .k_BSGK = x->kv,
                                  .v_BSGK = x->kv + P,
                                  .out_BTHK = x->out,
                                  .dout_BTHK = x->dout,
                                  .start_BT = x->start,
                                  .end_BT = x->end,
                                  .lse_BHT = x->lse,
                                  .dq_BTHK = x->dq,
                                  .dk_BSGK = x->dkv,
                                  .dv_BSGK = x->dkv + P};
}

static struct buffers alloc_buffers(struct arena *a)
{
    struct buffers x;
    x.qkv = arena_alloc(a, N * C, 2), x.kv = arena_alloc(a, N * 2 * P, 2);
    x.out = arena_alloc(a, N * Q, 2), x.dout = arena_alloc(a, N * Q, 2);
    x.sum = arena_alloc(a, N * Q, 4), x.lse = arena_alloc(a, N * H, 4);
    x.dq = arena_alloc(a, N * Q, 4), x.dkv = arena_alloc(a, N * 2 * P, 4);
    x.start = arena_alloc(a, N, 4), x.end = arena_alloc(a, N, 4);
    return x;
}

static void fill(bf16 *x, size_t n, uint64_t which)
{
    for (size_t i = 0; i < n; i++) x[i] = bf16_from_f32((float)rng_normal(1, RNG_TEST, which, i));
}

static double relative_error(const float *x, const float *y, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i] == y[i]) continue; /* infinities, too */
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    return error > 0 ? sqrt(error / size) : error;
}

/* The same memory of the device and of the host. */
struct rig {
    struct queue *gpu, *cpu;
    struct arena device, host;
    struct buffers on_device, on_host;
};

/* One by one, as gpu-memcheck places them further apart in device memory.  Results are NaN, which
 * must be replaced. */
static void copy_buffers(struct rig *r)
{
    const struct buffers *x = &r->on_host, *y = &r->on_device;
    const struct {
        void *to, *from;
        size_t bytes;
    } all[] = {{y->qkv, x->qkv, N * C * 2}, {y->kv, x->kv, N * 2 * P * 2},
               {y->out, x->out, N * Q * 2}, {y->dout, x->dout, N * Q * 2},
               {y->sum, x->sum, N * Q * 4}, {y->lse, x->lse, N * H * 4},
               {y->dq, x->dq, N * Q * 4},   {y->dkv, x->dkv, N * 2 * P * 4}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK_STATUS(OK, queue_copy(r->gpu, all[i].to, all[i].from, all[i].bytes));
}

static void open_rig(struct rig *r)
{
    enum { BYTES = 1 << 20 };
    CHECK_STATUS(OK, GPU_NAME(open)(&r->gpu, 0));
    CHECK_STATUS(OK, cpu_queue_open(&r->cpu, 1, 0));
    CHECK_STATUS(OK, arena_init(&r->device, BYTES, queue_device_allocator(r->gpu)));
    CHECK_STATUS(OK, arena_init(&r->host, BYTES, NULL));
    CHECK_STATUS(OK, arena_init(&r->gpu->scratch, BYTES, queue_device_allocator(r->gpu)));
    memset(r->host.base, 0xFF, BYTES); /* NaN: everything must be written */
    r->on_device = alloc_buffers(&r->device), r->on_host = alloc_buffers(&r->host);
    fill(r->on_host.qkv, N * C, 0), fill(r->on_host.kv, N * 2 * P, 1);
    fill(r->on_host.out, N * Q, 2), fill(r->on_host.dout, N * Q, 3);
    copy_buffers(r);
}

static void close_rig(struct rig *r)
{
    arena_release(&r->device), arena_release(&r->host);
    GPU_NAME(close)(r->gpu);
    cpu_queue_close(r->cpu);
}

static void compare(struct rig *r, const char *what, const float *on_device, const float *on_host,
                    size_t n)
{
    float *x = heap(n * sizeof *x);
    CHECK_STATUS(OK, queue_copy(r->gpu, x, on_device, n * sizeof *x));
    double error = relative_error(x, on_host, n);
    if (!(error < 0.01)) print_error("%s: relative error %g\n", what, error);
    CHECK(error < 0.01);
    free(x);
}

static const struct attention_library library = {NULL, flash_library_has_plan,
                                                 flash_library_forward, flash_library_backward};

/* One part, forward and backward, and by the CPU's reference with bounds. */
static void run_part(struct rig *r, const struct attention *a)
{
    const struct buffers *x = &r->on_host, *y = &r->on_device;
    bool done = false;
    for (int n = 0; n < N; n++) {
        x->start[n] = 0;
        x->end[n] = n % T < a->rectangle.first_query ? 0 : a->rectangle.num_keys;
    }
    struct attention_fwd forward = forward_of(x), gpu_forward = forward_of(y);
    struct attention_bwd backward = backward_of(x), gpu_backward = backward_of(y);
    CHECK_STATUS(OK, attention_forward(&ops_cpu_reference, a, &forward, r->cpu));
    CHECK_STATUS(OK, GPU_NAME(attention_part_forward)(&library, a, &gpu_forward, r->gpu, &done));
    CHECK(done);
    compare(r, "out", y->sum, x->sum, N * Q), compare(r, "lse", y->lse, x->lse, N * H);
    CHECK_STATUS(OK, attention_backward(&ops_cpu_reference, a, &backward, r->cpu));
    CHECK_STATUS(OK, GPU_NAME(attention_part_backward)(&library, a, &gpu_backward, r->gpu, &done));
    CHECK(done && r->gpu->scratch.used == 0);
    compare(r, "dq", y->dq, x->dq, N * Q), compare(r, "dk, dv", y->dkv, x->dkv, N * 2 * P);
}

TEST(rectangles_of_a_library_merge_as_parts_with_these_bounds)
{
    static const struct attention_rectangle all = {0, T}, keys = {0, T / 2}, queries = {T / 2, T};
    const struct attention parts[][3] = {
        {shape_of(all, true, FIRST_KEYS), shape_of(keys, false, MORE_KEYS),
         shape_of(queries, false, MORE_KEYS)},
        {shape_of(queries, false, FIRST_KEYS), shape_of(all, true, MORE_KEYS),
         shape_of(keys, false, MORE_KEYS)},
        {shape_of(keys, false, FIRST_KEYS), shape_of(all, false, MORE_KEYS),
         shape_of(all, false, MORE_KEYS)}};
    for (int i = 0; i < 3; i++) {
        struct rig r;
        open_rig(&r);
        for (int k = 0; k < 3; k++) run_part(&r, &parts[i][k]);
        close_rig(&r);
    }
}

static bool has_no_plan(void *context, const struct attention *a, bool backward,
                        const struct queue *queue)
{
    (void)context, (void)a, (void)backward, (void)queue;
    return false;
}

static size_t backward_scratch(const struct attention_library *l, const struct attention *a,
                               bool *done)
{
    struct queue queue = {.sizing = true};
    const struct attention_bwd none = {0};
    CHECK_STATUS(OK, GPU_NAME(attention_part_backward)(l, a, &none, &queue, done));
    CHECK(queue.scratch.used == 0);
    return queue.scratch.peak;
}

TEST(a_part_reserves_scratch_for_its_results_only_if_the_library_computes_it)
{
    const struct attention a = shape_of((struct attention_rectangle){T / 2, T}, false, FIRST_KEYS);
    const struct attention_library none = {NULL, has_no_plan, flash_library_forward,
                                           flash_library_backward};
    bool done;
    CHECK(backward_scratch(&library, &a, &done) >= N * P * 2 * 2 + N / 2 * (Q * 2 + H * 4) && done);
    CHECK(!backward_scratch(&none, &a, &done) && !done);
}

TEST(a_part_that_a_library_has_no_plan_for_needs_no_scratch_later)
{
    const struct attention a = shape_of((struct attention_rectangle){0, T}, true, FIRST_KEYS);
    const struct attention_library none = {NULL, has_no_plan, flash_library_forward,
                                           flash_library_backward};
    struct rig r;
    open_rig(&r);
    arena_release(&r.gpu->scratch);
    CHECK_STATUS(OK, arena_init(&r.gpu->scratch, 1, queue_device_allocator(r.gpu)));
    struct attention_fwd forward = forward_of(&r.on_device);
    struct attention_bwd backward = backward_of(&r.on_device);
    bool done = true;
    CHECK_STATUS(OK, GPU_NAME(attention_part_forward)(&none, &a, &forward, r.gpu, &done));
    CHECK(!done);
    done = true;
    CHECK_STATUS(OK, GPU_NAME(attention_part_backward)(&none, &a, &backward, r.gpu, &done));
    CHECK(!done);
    close_rig(&r);
}

TEST(a_part_without_a_rectangle_or_with_unaligned_heads_is_not_the_librarys)
{
    const struct attention_rectangle all = {0, T};
    struct attention a = shape_of(all, false, FIRST_KEYS);
    bool done;
    CHECK(backward_scratch(&library, &a, &done) && done);
    a.K = 20;
    CHECK(!backward_scratch(&library, &a, &done) && !done);
    a = shape_of((struct attention_rectangle){0}, false, FIRST_KEYS);
    CHECK(!backward_scratch(&library, &a, &done) && !done);
    a = shape_of(all, false, FIRST_KEYS), a.dtype = F32;
    CHECK(!backward_scratch(&library, &a, &done) && !done);
}
