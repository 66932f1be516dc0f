/* endpoint.h (comm/shm) -- messages between processes: one rank's end of all rings of a segment.
 *
 * A short message travels in one packet.  A longer one is announced; once its receive is posted,
 * the receiver copies its bytes from the sender's memory (process_vm_readv), as MPI libraries do
 * (cross-memory attach).  Where the system does not permit that, it asks the sender to copy them
 * through the ring.  So a message that nobody receives yet delays no other.
 * Order    Messages of one pair, group and tag are received in the order in which they are sent.
 * Memory   Records and the buffers of short messages are reused.  The caller's memory belongs to a
 *          message until it is complete.
 * Threads  One: the progress thread.  It must call endpoint_advance whenever its bell has been
 *          rung, and no function blocks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/shm/segment.h"

struct endpoint;

/* Messages that a caller waits for together. */
struct endpoint_batch {
    int num_pending;
    size_t received;    /* bytes, as their senders sent them */
    bool is_mismatched; /* a message had not the length that its receive expects */
};

/* One end of a message; `peer` is a rank of the segment. */
struct endpoint_message {
    int peer;
    uint64_t group;
    int tag;
    size_t bytes;
};

/* `segment` is borrowed. */
struct endpoint *endpoint_make(struct segment *segment, int rank);
/* Messages that are pending stay as they are. */
void endpoint_free(struct endpoint *e);

void endpoint_send(struct endpoint *e, struct endpoint_message m, const void *x,
                   struct endpoint_batch *batch);
void endpoint_receive(struct endpoint *e, struct endpoint_message m, void *x,
                      struct endpoint_batch *batch);
/* Moves all bytes that can be moved now. */
void endpoint_advance(struct endpoint *e);
