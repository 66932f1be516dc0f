/* transfer.h -- one collective or point-to-point message: its buffers, kind and peers.
 *
 * comm.h starts transfers and waits for them; the transports under comm/ carry them.
 * Memory   The caller's.  The buffers belong to the transfer from comm_start to comm_wait. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

/* name, what a rank receives */
#define TRANSFER_LIST(X)                                                                           \
    X(all_gather, "every rank's part")                                                             \
    X(reduce_scatter, "its own part of the sum over ranks")                                        \
    X(all_reduce, "the sum over ranks")                                                            \
    X(broadcast, "the root's data")                                                                \
    X(shift, "the previous rank's data, around a ring")                                            \
    X(all_to_all, "what each rank has for it")                                                     \
    X(send, "nothing")                                                                             \
    X(receive, "a peer's message")

enum transfer_kind {
#define X(name, text) TRANSFER_##name,
    TRANSFER_LIST(X)
#undef X
        TRANSFER_COUNT
};
const char *transfer_name(enum transfer_kind k);

struct comm;

struct transfer {
    enum transfer_kind kind;
    enum dtype dtype;
    size_t count;  /* elements of one rank's part (all_gather, reduce_scatter), of all parts of all
                    * ranks (all_to_all), else of x */
    void *x;       /* all_gather, reduce_scatter, all_to_all: `size` parts, by rank; all_gather
                    * reads its own */
    void *own;     /* reduce_scatter: receives this rank's sum; may be this rank's part of x.
                    * shift: receives x of the previous rank; does not overlap x.  all_to_all:
                    * receives this rank's part of each rank's x, by rank; does not overlap x */
    int peer;      /* broadcast: root; send, receive: the other rank */
    int tag;       /* send, receive: matches the receive to its send; below 2^15 */
    void *work;    /* transfer_work_bytes; NULL where those are 0 */
    bool is_bytes; /* elements are raw bytes and dtype is ignored; not for sums */
    /* all_to_all: elements of the parts of x and of own, by rank; this rank's own part is the same
     * in both.  Valid until comm_wait returns. */
    const size_t *sends, *receives;
    /* On a device the work that its queue gets after comm_start, which might leave the transfer no
     * multiprocessor, waits until the transfer may begin, too.  Usually it then begins first.  That
     * work also waits for the end of the group's transfers that are still in flight. */
    bool begins_first;
    /* Set by comm_start and the transport. */
    const struct comm *comm;
    void *in_flight; /* the transport's record of the transfer */
    /* clock_monotonic_s of the start and the end, only where the group has an observer.  The
     * transfer may end long before comm_wait; ended_s 0: the transport does not know. */
    double started_s, ended_s;
};

size_t transfer_element_bytes(const struct transfer *t);
const char *transfer_element_name(const struct transfer *t); /* "float32", "bytes" */
/* In a group of one: bytes that move from x to own. */
size_t transfer_bytes_to_own(const struct transfer *t);
void transfer_copy_to_own(const struct transfer *t); /* moves them, in host memory */
/* all_to_all: the elements before part `rank` of the parts of those sizes. */
size_t transfer_part(const size_t *sizes, int rank);

/* Elements of each rank's part that are summed at a time, which bounds working memory. */
size_t transfer_chunk(size_t count, int size);
/* Working memory of one transfer: a chunk from every rank; 0 for kinds that do not sum. */
size_t transfer_work_bytes(enum transfer_kind kind, enum dtype dtype, size_t count, int size);
/* The elements of x that `rank` sums in an all_reduce, and the first of them. */
size_t transfer_shard(size_t count, int size, int rank, size_t *begin);
