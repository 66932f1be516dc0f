/* Without a device the queue's memory is the host's. */
// SPDX-License-Identifier: Apache-2.0
#include "tensor/device.h"

#include "test.h"

TEST(a_queue_without_a_device_copies_and_zeroes_in_the_hosts_memory)
{
    struct queue on = {.num_threads = 2};
    char from[] = "numbers", to[sizeof from];
    CHECK(!queue_memory(&on));
    CHECK(!queue_shared(NULL));
    CHECK_STATUS(OK, queue_copy(&on, to, from, sizeof from));
    CHECK(!strcmp(to, from));
    CHECK_STATUS(OK, queue_zero(&on, to, 3));
    CHECK(!memcmp(to, "\0\0\0bers", sizeof to));
    CHECK_STATUS(OK, queue_copy(NULL, to, from, 2));
    CHECK(!memcmp(to, "nu\0bers", sizeof to));
    CHECK_STATUS(OK, queue_wait(&on));
}

TEST(nothing_is_copied_while_a_queue_measures)
{
    struct queue on = {.measuring = true};
    char x[] = "x";
    CHECK_STATUS(OK, queue_copy(&on, NULL, NULL, 8));
    CHECK_STATUS(OK, queue_zero(&on, x, 1));
    CHECK(x[0] == 'x');
}
