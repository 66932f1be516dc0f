/* segment.h (comm/shm) -- the memory that the ranks of one launcher share: a ring buffer from every
 * rank to every other, the bells of their progress threads, and how the run ends.
 *
 * It is a memfd, which the launcher makes and its children inherit: it has no name, and it is gone
 * when the last of them has ended, however they end.
 * Memory   Pages are allocated when they are first written, so rings between ranks that exchange no
 *          messages cost nothing.
 * Threads  One thread of the sender writes a ring, and one of the receiver reads it.  The order of
 *          packets is that of the writes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "comm/progress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SEGMENT_GATHER_BYTES = 128,      /* of a rank's part in segment_gather, at most */
    SEGMENT_FRAGMENT_BYTES = 1 << 14 /* of a packet's payload, at most */
};

struct segment;

/* Makes the memory for `size` ranks; *fd is inherited by fork, and closed by exec.  IO: the system
 * has no memory for it. */
enum status segment_make(int size, int *fd);
/* Maps it.  IO: impossible. */
enum status segment_map(int fd, int size, struct segment **out);
void segment_unmap(struct segment *s);

int segment_size(const struct segment *s);
struct progress_bell *segment_bell(struct segment *s, int rank);
/* The process whose memory a rank's messages are read from; 0: it cannot be read. */
void segment_set_process(struct segment *s, int rank, pid_t pid);
pid_t segment_process(const struct segment *s, int rank);
/* The first nonzero code stays: the rank that sets it ends the run, and has reported why. */
void segment_set_exit_code(struct segment *s, int code);
int segment_exit_code(const struct segment *s);
/* Waits for all ranks; x is `size` parts, by rank, of which each rank has set its own. */
void segment_gather(struct segment *s, int rank, void *x, size_t bytes);

/* What precedes a packet's payload; the meaning of its fields is the sender's and receiver's. */
struct packet {
    uint32_t kind, bytes; /* of the payload */
    int64_t tag;
    uint64_t group, total, own, other;
};

/* Appends a packet to the ring from `from` to `to`.  False: it is full; the reader will ring the
 * writer's bell when it has made space. */
bool segment_write(struct segment *s, int from, int to, const struct packet *p,
                   const void *payload);
/* Copies the header of the oldest packet in the ring; false: the ring is empty. */
bool segment_peek(struct segment *s, int from, int to, struct packet *p);
/* Removes that packet, with the header `p`, and copies its payload if `payload` is not NULL. */
void segment_read(struct segment *s, int from, int to, const struct packet *p, void *payload);
