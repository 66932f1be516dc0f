/* bandwidth.h -- measures the host's memory bandwidth as the STREAM benchmark does: the ceiling of
 * every kernel that is bound by memory.
 *
 * Units    Bytes/s that a loop reads plus those it writes; read-for-ownership traffic is not
 *          counted. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

/* name, what one pass over the memory does */
#define BANDWIDTH_LIST(X)                                                                          \
    X(read, "reads all of it")                                                                     \
    X(write, "writes all of it")                                                                   \
    X(copy, "copies one half to the other")                                                        \
    X(update, "reads, changes and writes all of it in place")

enum bandwidth_kernel {
#define X(name, text) BANDWIDTH_##name,
    BANDWIDTH_LIST(X)
#undef X
        BANDWIDTH_COUNT
};

const char *bandwidth_name(enum bandwidth_kernel s);

/* One pass over `bytes` (a multiple of 128) of memory that is already mapped, split among the
 * threads. */
double bandwidth_measure(enum bandwidth_kernel s, void *memory, size_t bytes, int num_threads);
/* The best of `passes`. */
double bandwidth_measure_best(enum bandwidth_kernel s, void *memory, size_t bytes, int num_threads,
                              int passes);
