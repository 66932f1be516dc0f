/* thread.h -- the cores of this process, and background threads.
 *
 * Compute threads are pinned to a core each if there are exactly as many threads as cores.
 * Background threads, which read data and write checkpoints, may run on every core at lower
 * priority. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <pthread.h>

/* Cores in the process's affinity mask at start: all, or those a cpuset or a launcher allows. */
int thread_cores(void);
/* The same as a bit mask: bit n % 8 of byte n / 8 is core n of the host.  Empty if the host has
 * more cores than a cpu_set_t. */
enum { THREAD_CORE_BYTES = 128 };
void thread_core_mask(unsigned char set[THREAD_CORE_BYTES]);
/* Binds the process to these cores, as if a launcher had: they become those of the functions above.
 * Call it before the process starts threads. */
void thread_bind(const unsigned char set[THREAD_CORE_BYTES]);
/* Pins the calling thread to the nth of those cores, from 0; n < 0: to all of them. */
void thread_pin(int n);
/* Has the threads of libgomp, which wait for each other at the end of every operation, sleep after
 * THREAD_SPINS spins: longer than the time between two operations.  Its default of 300,000 spins,
 * several milliseconds, slows a step severalfold on cores that another process needs, too.  libgomp
 * reads its settings when a process starts, so this executes the program again, with
 * GOMP_SPINCOUNT; it does nothing if that or OMP_WAIT_POLICY is set.  Call it before the command
 * opens files. */
#define THREAD_SPINS "10000"
void thread_limit_spinning(char **argv);
/* Starts a background thread with lower priority, whose OpenMP regions have one thread unless they
 * name a number.  IO: the system cannot create a thread. */
enum status thread_start_background(pthread_t *thread, void *(*run)(void *), void *argument);
/* The same at normal priority, for a thread that others wait for. */
enum status thread_start_foreground(pthread_t *thread, void *(*run)(void *), void *argument);
