/* thread.h -- the cores of this process, and threads that run beside those that compute.
 *
 * Computing threads keep to a core each; the others, which read data and write checkpoints, may use
 * every core and give way. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <pthread.h>

/* Cores that the process was started with: all, or what a cpuset or a launcher left it. */
int thread_cores(void);
/* The same as a set: bit n % 8 of byte n / 8 is core n of the host.  Empty: there are too many. */
enum { THREAD_CORE_BYTES = 128 };
void thread_core_set(unsigned char set[THREAD_CORE_BYTES]);
/* The calling thread stays on core n of those, counted from 0; n < 0: it may use them all again. */
void thread_pin(int n);
/* A thread beside those that compute.  IO: the system gives none. */
enum status thread_start(pthread_t *thread, void *(*run)(void *), void *argument);
/* The same for a thread that others wait for: it does not give way. */
enum status thread_start_equal(pthread_t *thread, void *(*run)(void *), void *argument);
