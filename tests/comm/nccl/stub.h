/* stub.h (tests) -- a device and a library for tests of comm/nccl: lanes are threads, ranks of a
 * communicator meet in this process, and both behave as the real ones where it is awkward: work of
 * a lane is done when its turn comes, a send lasts until it is received, a call that is the first
 * of its communicator holds up the host until the others make theirs, and nobody is told that a
 * rank is gone. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

/* Puts work behind what the stream has. */
void stub_push(void *stream, void (*run)(void *work), void *work);

/* The device that the calling thread's rank has. */
void stub_device(const char *name);

/* From here on (but for NULL) communicators of this rank report this when asked. */
void stub_break(int rank, const char *error);
/* What is open now: communicators, registered memory, lanes, marks. */
struct stub_counts {
    int comms, registered, lanes, marks;
    int aborted, messages; /* ever */
};
struct stub_counts stub_counts(void);
void stub_count_lane(int by), stub_count_mark(int by);
