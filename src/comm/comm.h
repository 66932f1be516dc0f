/* comm.h -- a group of ranks and what it can do together.
 *
 * Filled in by transports: comm/self (one rank), comm/mpi; and, of a device's memory, by
 * comm/staged and comm/nccl.
 * Ranks    Every function is collective, save sending and receiving: all ranks of the group call
 *          it, in the same order, with the same kind and sizes.
 * Order    A sum is taken over pairs of neighbours, then over pairs of pairs, and so on.  So it has
 *          the same bits on all ranks and run after run; and a sum over groups of 2^n neighbours,
 *          then over those groups' sums, has the bits of the sum over all ranks at once.
 * Memory   The caller's: a transfer under way holds no memory but what it was given.  It is the
 *          host's, or a device's where the transport says so. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reduction { REDUCE_SUM, REDUCE_MAX };

/* name, what arrives */
#define TRANSFER_LIST(X)                                                                           \
    X(all_gather, "every rank's part, everywhere")                                                 \
    X(reduce_scatter, "the sum over ranks of one's own part")                                      \
    X(all_reduce, "the sum over ranks")                                                            \
    X(broadcast, "what the root has")                                                              \
    X(send, "nothing")                                                                             \
    X(receive, "what a peer sends")

enum transfer_kind {
#define X(name, text) TRANSFER_##name,
    TRANSFER_LIST(X)
#undef X
        TRANSFER_COUNT
};
const char *transfer_name(enum transfer_kind k);

struct comm;

/* One thing to move.  Buffers stay the transfer's from comm_start to comm_wait. */
struct transfer {
    enum transfer_kind kind;
    enum dtype dtype;
    size_t count; /* elements of a part (all_gather, reduce_scatter), else of x */
    void *x;      /* all_gather: size parts, one's own in its place; reduce_scatter: size parts */
    void *own;    /* reduce_scatter: one's part of the sum; may be its place in x */
    int peer;     /* broadcast: root; send, receive: the other rank */
    int tag;      /* send, receive: tells messages between two ranks apart, below 2^15 */
    void *work;   /* transfer_work_bytes, or NULL where those are 0 */
    /* The transport's while the transfer is under way. */
    const struct comm *comm;
    void *under_way;
    /* By clock_monotonic_s, where the group is watched: when it was started, and when it was over,
     * which may be long before it was waited for; 0: the transport does not say. */
    double began_s, over_s;
};

/* A message's other end, and its tag. */
struct message {
    int peer, tag;
};

/* Elements of each rank's part that are summed at once, so that working memory is bounded. */
size_t transfer_piece(size_t count, int size);
/* Bytes of working memory a transfer of this kind needs: a piece of every rank. */
size_t transfer_work_bytes(enum transfer_kind kind, enum dtype dtype, size_t count, int size);
/* An all_reduce sums share r of x on rank r: where that begins, and its elements. */
size_t transfer_share(size_t count, int size, int rank, size_t *begin);

/* Who wants to know of every transfer as it starts and when it has been waited for; `bytes` are
 * those this rank receives from others. */
struct comm_watch {
    void (*start)(struct comm_watch *w, const struct comm *c, const struct transfer *t,
                  size_t bytes);
    void (*wait)(struct comm_watch *w, const struct transfer *t);
};

/* What went over a group, seen from this rank: bytes that it received from others. */
struct comm_counts {
    uint64_t calls[TRANSFER_COUNT], bytes[TRANSFER_COUNT];
    struct comm_watch *watch; /* borrowed; NULL: nobody */
};

struct transport {
    const char *name;
    /* Ranks that give the same color make a group, ordered by key; `out` is to be released. */
    enum status (*split)(const struct comm *c, int color, int key, struct comm *out);
    void (*release)(struct comm *c);
    /* Starts; the transfer goes on while the caller computes. */
    enum status (*start)(const struct comm *c, struct transfer *t);
    enum status (*wait)(struct transfer *t);
    /* values[i] becomes the reduction of all ranks' values[i]; in the order above. */
    enum status (*reduce)(const struct comm *c, enum reduction how, double *values, size_t count);
    /* NULL: messages need nothing. */
    enum status (*expect)(const struct comm *c, const struct message *sends, int num_sends,
                          const struct message *receives, int num_receives);
    /* NULL: memory needs nothing. */
    enum status (*lend)(const struct comm *c, void *at, size_t bytes);
};

struct comm {
    int rank, size;
    const struct transport
        *transport;             /* NULL: only planned; transfers are counted and move nothing */
    void *group;                /* the transport's */
    struct comm_counts *counts; /* owned by the group; NULL: nobody counts */
};

enum status comm_split(const struct comm *c, int color, int key, struct comm *out);
void comm_release(struct comm *c);

/* This rank will often send and receive such messages: a transport may make ways for them, which
 * others do without.  Those of one pair and tag are received in the order in which they are sent,
 * and each receive has its send on another rank.  Collective; may be said again. */
enum status comm_expect(const struct comm *c, const struct message *sends, int num_sends,
                        const struct message *receives, int num_receives);

/* Much that is moved will be in this memory: a transport may prepare it, so that nothing is copied
 * on the way.  Before it is given back, bytes 0 ends that. */
enum status comm_lend(const struct comm *c, void *at, size_t bytes);

/* Starts t on the group.  In a group of one nothing moves, and the sum is what there is. */
enum status comm_start(const struct comm *c, struct transfer *t);
/* The transfer is over; its buffers are the caller's again.  COMM: a rank is gone. */
enum status comm_wait(struct transfer *t);
/* Both. */
enum status comm_run(const struct comm *c, struct transfer *t);

/* values[i] becomes the reduction of all ranks' values[i].  NaN anywhere gives NaN everywhere, also
 * for the maximum.  COMM: a rank is gone. */
enum status comm_all_reduce(const struct comm *c, enum reduction how, double *values, size_t count);

/* Makes a failure common: every rank passes what it has and all go on only if all are fine.  A rank
 * that failed gets its own status back.  The lowest of them keeps its message and trace; the others
 * get one that names that rank, and its status where they have none.  The failure is then shared.
 */
enum status comm_agree(const struct comm *c, enum status mine);
/* This thread's last failure is but the news of another rank's, which tells it itself. */
bool comm_failed_elsewhere(void);

/* out[i] = sum of parts[0..size) [i], in the order above, in f32; for transports.  `out` may be one
 * of the parts. */
void comm_sum(enum dtype dtype, const void *const *parts, int size, size_t count, void *out);
/* The same for doubles, which lie as size rows of `count`. */
void comm_sum_doubles(const double *rows, int size, size_t count, double *out);
