/* The table of operations over device memory; tests/ops compares each slot with the reference. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/varlen.h"
#include "ops/rig.h"
#include "ops/rmsnorm.h"
#include "ops/swiglu.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"

enum { N = 5, F = 24 };

struct chain {
    float *x_N2F, *out_NF, *rstd_N;
    bf16 *half_N2F, *w_2F, *y_N2F, *act_NF;
};

static void alloc_chain(struct chain *c, struct arena *a)
{
    c->x_N2F = arena_alloc(a, N * 2 * F, sizeof(float));
    c->out_NF = arena_alloc(a, N * F, sizeof(float));
    c->rstd_N = arena_alloc(a, N, sizeof(float));
    c->half_N2F = arena_alloc(a, N * 2 * F, sizeof(bf16));
    c->w_2F = arena_alloc(a, 2 * F, sizeof(bf16));
    c->y_N2F = arena_alloc(a, N * 2 * F, sizeof(bf16));
    c->act_NF = arena_alloc(a, N * F, sizeof(bf16));
}

static void run_chain(const struct ops *ops, const struct chain *c, struct queue *queue)
{
    struct cast narrow = {.n = N * 2 * F, .to = BF16}, widen = {.n = N * F, .from = BF16};
    struct rmsnorm norm = {.N = N, .D = 2 * F, .eps = 1e-5f, .dtype = BF16};
    struct swiglu act = {N, F, BF16, false};
    CHECK_STATUS(OK, cast(ops, &narrow, &(struct cast_io){c->x_N2F, c->half_N2F}, queue));
    struct rmsnorm_fwd norm_io = {c->half_N2F, c->w_2F, c->y_N2F, c->rstd_N, NULL};
    CHECK_STATUS(OK, rmsnorm_forward(ops, &norm, &norm_io, queue));
    CHECK_STATUS(OK,
                 swiglu_forward(ops, &act, &(struct swiglu_fwd){c->y_N2F, c->act_NF, NULL}, queue));
    CHECK_STATUS(OK, cast(ops, &widen, &(struct cast_io){c->act_NF, c->out_NF}, queue));
}

TEST(chained_kernels_over_device_memory_match_the_reference)
{
    struct queue *queue;
    const struct ops *ops;
    struct arena device_arena, host_arena;
    struct chain device, host;
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    ops = &gpu_emu32_ops;
    CHECK_STATUS(OK, arena_init(&device_arena, 1 << 16, queue_device_allocator(queue)));
    CHECK_STATUS(OK, arena_init(&host_arena, 1 << 16, NULL));
    alloc_chain(&device, &device_arena), alloc_chain(&host, &host_arena);
    float *x = rig_random(1, N * 2 * F, F32), out[N * F];
    bf16 *w = rig_random(2, 2 * F, BF16);
    memcpy(host.x_N2F, x, N * 2 * F * sizeof *x), memcpy(host.w_2F, w, 2 * F * sizeof *w);
    run_chain(&ops_cpu_reference, &host, rig_queue());
    CHECK_STATUS(OK, queue_copy(queue, device.x_N2F, x, N * 2 * F * sizeof *x));
    CHECK_STATUS(OK, queue_copy(queue, device.w_2F, w, 2 * F * sizeof *w));
    run_chain(ops, &device, queue);
    CHECK_STATUS(OK, queue_copy(queue, out, device.out_NF, sizeof out));
    RIG_CLOSE(out, host.out_NF, N * F, BF16);
    free(x), free(w), arena_release(&device_arena), arena_release(&host_arena);
    gpu_emu32_close(queue);
}

TEST(tracing_synchronizes_after_each_kernel)
{
    struct queue *queue;
    const struct ops *ops;
    struct arena shared;
    struct trace trace = {0};
    struct cast copy = {.n = 1};
    CHECK_STATUS(OK, gpu_emu64_open(&queue, 0));
    ops = &gpu_emu64_ops;
    CHECK_STATUS(OK, arena_init(&shared, 4096, queue_shared_allocator(queue)));
    float *x = arena_alloc(&shared, 1, sizeof *x), *y = arena_alloc(&shared, 1, sizeof *y);
    *x = 1;
    CHECK_STATUS(OK, cast(ops, &copy, &(struct cast_io){x, y}, queue));
    CHECK(*y == 0);
    *x = 2, queue->trace = &trace;
    CHECK_STATUS(OK, cast(ops, &copy, &(struct cast_io){x, y}, queue));
    CHECK(*y == 2 && trace.count == 1);
    queue->trace = NULL, trace_release(&trace), arena_release(&shared);
    gpu_emu64_close(queue);
}

TEST(a_failed_launch_is_reported_by_the_operation)
{
    struct queue *queue;
    const struct ops *ops;
    struct varlen_shape too_long = {1, 1 << 22, 1}; /* more than 65535 blocks along y */
    struct cast copy = {.n = 1};
    struct arena shared;
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    ops = &gpu_emu32_ops;
    CHECK_STATUS(OK, arena_init(&shared, 4096, queue_shared_allocator(queue)));
    struct cast_io io = {shared.base, shared.base};
    CHECK_STATUS(DEVICE, gpu_emu32_varlen_to_tokens(NULL, NULL, too_long, queue));
    CHECK_MESSAGE("transpose_kernel");
    CHECK_MESSAGE("invalid value");
    CHECK_STATUS(OK, cast(ops, &copy, &io, queue));
    CHECK_STATUS(OK,
                 cast(ops, &(struct cast){0}, &(struct cast_io){0}, queue)); /* launches nothing */
    CHECK_STATUS(OK, queue_wait(queue));
    arena_release(&shared);
    gpu_emu32_close(queue);
}
