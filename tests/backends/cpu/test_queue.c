// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "test.h"

TEST(a_cpu_queue_has_the_threads_and_the_scratch_that_were_asked_for)
{
    struct queue *on;
    CHECK_STATUS(OK, cpu_queue_open(&on, 2, 1 << 16));
    CHECK(on->num_threads == 2 && !on->measuring && !on->trace);
    unsigned char *scratch = arena_take(&on->scratch, 1 << 16, 1);
    CHECK(scratch);
    scratch[0] = scratch[(1 << 16) - 1] = 1;
    cpu_queue_close(on);
}

TEST(a_cpu_queue_without_a_number_of_threads_takes_at_least_one)
{
    struct queue *on;
    CHECK_STATUS(OK, cpu_queue_open(&on, 0, 0));
    CHECK(on->num_threads >= 1);
    cpu_queue_close(on);
    cpu_queue_close(NULL);
}
