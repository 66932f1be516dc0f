// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/queue.h"

#include "backends/cpu/cpu.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/tuner.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"

#include <omp.h>
#include <stdlib.h>

enum status cpu_queue_open(struct queue **out, int num_threads, size_t scratch_bytes)
{
    struct cpu_queue *q = heap(sizeof *q);
    *out = &q->base;
    q->base.num_threads = num_threads > 0 ? num_threads : omp_get_max_threads();
    omp_set_num_threads(q->base.num_threads);
    enum status st = onednn_open(&q->onednn);
    if (!st) st = arena_init(&q->base.scratch, scratch_bytes, NULL);
    if (st) {
        cpu_queue_close(*out);
        *out = NULL;
    }
    return st;
}

void cpu_queue_pin(const struct queue *queue)
{
    if (queue->num_threads != thread_cores()) return;
#pragma omp parallel num_threads(queue->num_threads)
    thread_pin(omp_get_thread_num());
}

void cpu_queue_tune(struct queue *queue, const char *path, const char *backend,
                    const char *processor)
{
    struct cpu_queue *q = (struct cpu_queue *)queue;
    struct tuned_device d = {backend, processor, queue->num_threads};
    BUG_IF(q->tuner);
    q->tuner = tuner_open(path, &d, clock_monotonic_s);
}

void cpu_queue_use_tuning(struct queue *queue, bool use)
{
    struct tuner *t = ((struct cpu_queue *)queue)->tuner;
    if (t) tuner_use(t, use);
}

void cpu_queue_close(struct queue *queue)
{
    struct cpu_queue *q = (struct cpu_queue *)queue;
    if (!q) return;
    arena_release(&q->base.scratch);
    onednn_close(q->onednn);
    tuner_close(q->tuner);
    free(q);
}
