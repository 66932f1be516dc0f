/* stub.h (tests) -- stand-ins for a device and for NCCL: streams are threads, and the ranks of a
 * communicator meet in this process.  They have the real ones' awkward properties: work of a stream
 * runs in order, a send lasts until it is received, the first message of a communicator, its first
 * all-reduce and its first other collective block the host until all ranks make theirs, no rank
 * learns that another is gone, destroying a communicator waits until all its ranks destroy or abort
 * theirs, and aborting one waits until its device is idle. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

/* Enqueues work on the stream. */
void stub_push(void *stream, void (*run)(void *work), void *work);

/* Sets the PCI bus id of the calling rank's device. */
void stub_device(const char *name);
/* What the library says that it is; 22803 at first. */
void stub_set_version(int version);

/* From here on communicators of this rank, or of all, report this asynchronous error; NULL: none
 * any longer. */
enum { STUB_ALL_RANKS = 1 << 30 };
void stub_break(int rank, const char *error);
/* Waits until this thread's device runs no transfer, as cudaFree does. */
void stub_await_idle(void);
/* Whether calls that issue a transfer fail. */
void stub_refuse_transfers(bool refused);
/* Whether deregistering memory takes 0.2 s, during which the rank gets an asynchronous error. */
void stub_break_deregistering(bool broken);
/* Whether destroying or aborting a communicator waits, as for ranks of the host that do not. */
void stub_block_destroy(bool blocked);
/* Open now: communicators, registered buffers, streams, events. */
struct stub_counts {
    int comms, registered, streams, events;
    int aborted, messages, opened; /* in total; streams that were opened */
    int connected;                 /* in total: ranks that a first transfer connected */
    int interrupted; /* in total: deregistrations during which the communicator was aborted */
};
struct stub_counts stub_counts(void);
void stub_count_stream(int by), stub_count_event(int by);
/* For how many events of streams the queues of the calling thread have waited, and the last. */
int stub_joins(const void **last);
