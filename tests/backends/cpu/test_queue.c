// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "base/thread.h"
#include "test.h"

#include <omp.h>
#include <sched.h>

TEST(queue_has_the_requested_threads_and_scratch)
{
    struct queue *queue;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 2, 1 << 16));
    CHECK(queue->num_threads == 2 && !queue->sizing && !queue->trace);
    unsigned char *scratch = arena_alloc(&queue->scratch, 1 << 16, 1);
    CHECK(scratch);
    scratch[0] = scratch[(1 << 16) - 1] = 1;
    cpu_queue_close(queue);
}

TEST(queue_with_default_threads_has_at_least_one)
{
    struct queue *queue;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 0, 0));
    CHECK(queue->num_threads >= 1);
    cpu_queue_close(queue);
    cpu_queue_close(NULL);
}

/* Number of cores that each of the queue's threads may use. */
static void cores_of(const struct queue *queue, int *counts)
{
#pragma omp parallel num_threads(queue->num_threads)
    {
        cpu_set_t set;
        counts[omp_get_thread_num()] =
            sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
    }
}

TEST(threads_are_pinned_only_if_there_is_one_core_each)
{
    for (int more = 0; more < 2; more++) {
        struct queue *queue;
        int cores = thread_cores(), counts[4096];
        if (cores + more > 4096) return;
        CHECK_STATUS(OK, cpu_queue_open(&queue, cores + more, 0));
        cpu_queue_pin(queue);
        cores_of(queue, counts);
        for (int i = 0; i < queue->num_threads; i++) CHECK(counts[i] == (more ? cores : 1));
#pragma omp parallel num_threads(queue->num_threads)
        thread_pin(-1);
        cpu_queue_close(queue);
    }
}
