// SPDX-License-Identifier: Apache-2.0
#include "perf/hardware_probe.h"

#include "base/clock.h"
#include "machine/bandwidth.h"
#include "machine/machine.h"
#include "metrics/memory.h"
#include "ops/linear.h"
#include "perf/device_bench.h"
#include "perf/sim_clock.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

/* FLOP/s of a GEMM. */
static enum status measure_gemm(const struct linear *l, struct machine *m, double *rate)
{
    struct arena a = {0};
    struct queue *queue = m->queue;
    size_t sizes[] = {(size_t)l->N * (size_t)l->D, (size_t)l->F * (size_t)l->D,
                      (size_t)l->N * (size_t)l->F};
    enum status st = STATUS_OK;
    TRY_OUT(arena_init(&a, (sizes[0] + sizes[1] + sizes[2]) * 4 + 4 * ARENA_ALIGN, NULL));
    struct linear_fwd io = {0};
    io.x_ND = arena_alloc(&a, sizes[0], 4);
    io.w_FD = arena_alloc(&a, sizes[1], 4);
    io.y_NF = arena_alloc(&a, sizes[2], 4);
    arena_release(&queue->scratch);
    queue->sizing = true;
    TRY_OUT(linear_forward(m->ops, l, &io, queue));
    queue->sizing = false;
    size_t scratch = queue->scratch.peak;
    TRY_OUT(arena_init(&queue->scratch, scratch, NULL));
    double best = INFINITY, begin = clock_monotonic_s();
    do { /* once at least, also where the process does not run for 0.2 s */
        double start = clock_monotonic_s();
        TRY_OUT(linear_forward(m->ops, l, &io, queue));
        double seconds = clock_monotonic_s() - start;
        if (seconds < best) best = seconds;
    } while (clock_monotonic_s() - begin < 0.2);
    *rate = 2.0 * l->N * l->D * l->F / best;
out:
    queue->sizing = false;
    arena_release(&queue->scratch);
    arena_release(&a);
    return st;
}

static enum status measure_copy(const struct queue *queue, double *rate)
{
    enum { BYTES = 64 << 20, PASSES = 5 };
    struct arena a = {0};
    TRY(arena_init(&a, BYTES, NULL));
    *rate = bandwidth_measure_best(BANDWIDTH_copy, a.base, BYTES, queue->num_threads, PASSES);
    arena_release(&a);
    return STATUS_OK;
}

/* Bytes/s from pinned host memory to the device. */
static enum status measure_host_link(struct queue *queue, double *rate)
{
    enum { BYTES = 64 << 20, PASSES = 4 };
    struct arena own = {0}, shared = {0};
    enum status st = STATUS_OK;
    double best = 1e9;
    TRY_OUT(arena_init(&own, BYTES, queue_device_allocator(queue)));
    TRY_OUT(arena_init(&shared, BYTES, queue_shared_allocator(queue)));
    for (int i = 0; i < PASSES; i++) {
        double begin = clock_monotonic_s();
        TRY_OUT(queue_copy(queue, own.base, shared.base, BYTES));
        double seconds = clock_monotonic_s() - begin;
        if (seconds < best) best = seconds;
    }
    *rate = BYTES / best;
out:
    arena_release(&own), arena_release(&shared);
    return st;
}

enum hardware_vendor hardware_probe_vendor(const struct machine *m)
{
    if (m->hardware) return m->hardware->vendor;
    return strcmp(m->ops->backend, "hip") != 0 ? VENDOR_nvidia : VENDOR_amd;
}

/* What no measurement shows: from the row of a GPU that hardware.h knows. */
static void describe_device(struct hardware *h, const struct device_config *c,
                            const struct machine *m)
{
    bool native = m->ops->has_native_fp8 && m->ops->has_native_fp8(m->queue);
    h->name = m->ops->backend, h->text = "a GPU of this machine";
    h->vendor = hardware_probe_vendor(m);
    if (c->fp8_speedup == 0) h->float8 = native ? 2 : 1;
    if (!m->hardware) return;
    const struct hardware known = device_config_apply(c, m->hardware);
    h->name = known.name, h->vendor = known.vendor;
    h->node_ranks = known.node_ranks, h->node_bandwidth = known.node_bandwidth;
    h->network_bandwidth = known.network_bandwidth, h->latency_s = known.latency_s;
    if (native) h->float8 = known.float8;
}

/* On a GPU: a large GEMM, copies, and the size of its memory. */
static enum status measure_device(struct hardware *h, const struct config *c,
                                  const struct machine *m)
{
    enum { MAX_BYTES = 384 << 20, ROUNDS = 3 };
    struct device_ceilings is;
    size_t all, used;
    describe_device(h, &c->device, m);
    TRY(queue_memory_info(m->queue, &all, &used));
    size_t bytes = all >> 12;
    TRY(device_bench_ceilings(&is, m, bytes < MAX_BYTES ? bytes : MAX_BYTES, ROUNDS));
    double peak = c->metrics.peak_flops > 0 ? c->metrics.peak_flops : m->peak_flops;
    if (h->bf16_flops == 0) h->bf16_flops = peak > 0 ? peak : is.flops[BF16];
    if (h->f32_flops == 0) h->f32_flops = is.flops[F32];
    if (h->efficiency == 0) h->efficiency = is.flops[BF16] / h->bf16_flops;
    if (h->memory_bandwidth == 0) h->memory_bandwidth = is.copy / SIM_CLOCK_MEMORY_EFFICIENCY;
    if (h->memory_bytes == 0) h->memory_bytes = (double)all;
    if (h->host_bandwidth == 0) {
        TRY(measure_host_link(m->queue, &h->host_bandwidth));
        h->host_bandwidth /= SIM_CLOCK_LINK_EFFICIENCY;
    }
    return STATUS_OK;
}

enum status hardware_probe_fill(struct hardware *h, const struct config *c,
                                const struct model_shape *shape, struct machine *m)
{
    if (queue_device_allocator(m->queue)) return measure_device(h, c, m);
    struct linear l = {
        .N = 512,
        .D = shape->D < 2048 ? shape->D : 2048,
        .F = shape->F < 4096 ? shape->F : 4096,
        .dtype = training_compute_dtype(&c->training),
    };
    trainer_set_queue(m->queue, c);
    double *peak = l.dtype == F32 ? &h->f32_flops : &h->bf16_flops, rate;
    if (*peak == 0) *peak = c->metrics.peak_flops;
    if (*peak == 0) {
        machine_measure_peak(m, l.dtype);
        *peak = m->peak_flops;
    }
    if (h->efficiency == 0) {
        TRY(measure_gemm(&l, m, &rate));
        h->efficiency = rate / *peak;
    }
    if (h->memory_bandwidth == 0) {
        TRY(measure_copy(m->queue, &rate));
        h->memory_bandwidth = rate / SIM_CLOCK_MEMORY_EFFICIENCY;
    }
    if (h->memory_bytes == 0) h->memory_bytes = (double)memory_total_bytes();
    return STATUS_OK;
}

double hardware_probe_mfu_peak(const struct hardware *h, const struct config *c)
{
    if (c->metrics.peak_flops > 0) return c->metrics.peak_flops;
    return training_compute_dtype(&c->training) == F32 ? h->f32_flops : h->bf16_flops;
}
