/* comm.h -- a communicator: a group of ranks, and the transfers and collectives among them.
 *
 * Transports implement it: comm/mpi for host memory; comm/staged and comm/nccl for device memory.
 * comm_self is the group of one.
 * Ranks    Every function is collective except send and receive: all ranks of the group call it in
 *          the same order, with the same kind and sizes.
 * Order    Sums of floating-point numbers are taken over pairs of neighboring ranks, then over
 *          pairs of pairs, and so on.  So all ranks get the same bits, run after run, and reducing
 *          over groups of 2^n neighbors and then over those groups gives the bits of reducing
 *          over all ranks at once.
 * Memory   Transfers use only the caller's buffers.  Those are host memory, or device memory on
 *          comm/staged and comm/nccl.  The functions that are not transfers always take host
 *          memory.
 * Errors   COMM: a rank died, or the library reports an error; in a group that is_checked also if
 *          ranks start different collectives. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/exact_sum.h"
#include "base/status.h"
#include "comm/transfer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reduction { REDUCE_SUM, REDUCE_MAX, REDUCE_MIN };

/* Which transfers a group makes: a promise of the caller.  comm/nccl saves streams by it. */
enum comm_use { COMM_ALL, COMM_ONLY_SHIFTS, COMM_ONLY_MESSAGES };

/* One end of a point-to-point message: the other rank, and the tag. */
struct p2p_message {
    int peer, tag;
};

/* Called when a transfer starts and when comm_wait returns; `bytes` are those that this rank
 * receives from others. */
struct comm_observer {
    void (*start)(struct comm_observer *w, const struct comm *c, const struct transfer *t,
                  size_t bytes);
    void (*wait)(struct comm_observer *w, const struct transfer *t);
};

/* A collective, as every rank of its group must start it. */
struct collective {
    uint64_t number; /* in the group's sequence of collectives, from 1 */
    uint64_t count;  /* elements, as in struct transfer */
    enum transfer_kind kind;
    enum dtype dtype;
    bool is_bytes;         /* elements are raw bytes and dtype is ignored */
    int root;              /* broadcast; 0 otherwise */
    enum reduction reduce; /* of host numbers */
    int world_rank;        /* who starts it, for messages; not compared */
};

/* Traffic of a group as this rank sees it: transfers, and bytes received from other ranks. */
struct comm_counts {
    uint64_t calls[TRANSFER_COUNT], bytes[TRANSFER_COUNT];
    struct comm_observer *observer; /* borrowed; NULL: none */
    /* Collectives that this rank has started, including those of host memory, but not
     * point-to-point messages; the last one; and a hash over all.  All ranks of the group have the
     * same. */
    _Atomic uint64_t collectives; /* atomic, so that a watchdog can read it */
    struct collective last;
    uint64_t hash;
    bool is_checked;  /* compare every collective with the other ranks' before it starts */
    const char *name; /* of the group, for messages; NULL: it has none */
};

struct transport {
    const char *name;
    bool own_order; /* sums are taken in the library's order, not in that of this header */
    /* Ranks that pass the same color form a group, ordered by key.  The caller releases `out`. */
    enum status (*split)(const struct comm *c, int color, int key, struct comm *out);
    void (*release)(struct comm *c);
    /* Starts the transfer and returns; it proceeds while the caller computes. */
    enum status (*start)(const struct comm *c, struct transfer *t);
    enum status (*wait)(struct transfer *t);
    /* The group of the same ranks that carries host memory; NULL: this one does. */
    enum status (*host)(const struct comm *c, const struct comm **out);
    /* All-gather of host memory: `size` parts of `bytes`, by rank, in a buffer of the transport
     * that is valid until its next call.  Not called where `host` is set. */
    enum status (*gather)(const struct comm *c, const void *mine, size_t bytes, const void **all);
    /* NULL: messages need no preparation. */
    enum status (*declare_p2p)(const struct comm *c, const struct p2p_message *sends, int num_sends,
                               const struct p2p_message *receives, int num_receives);
    /* NULL: memory needs no registration. */
    enum status (*register_memory)(const struct comm *c, void *at, size_t bytes);
};

struct comm {
    int rank, size;
    const struct transport *transport; /* NULL: simulated; transfers are counted, nothing moves */
    void *group;                       /* the transport's */
    struct comm_counts *counts;        /* owned by the group; NULL: not counted */
};

/* The group of one rank, as MPI_COMM_SELF.  Never NULL; a copy of it needs no release. */
const struct comm *comm_self(void);

/* As MPI_Comm_split.  Over comm/nccl also the errors of nccl.h. */
enum status comm_split(const struct comm *c, int color, int key, struct comm *out);
void comm_release(struct comm *c);

/* Declares messages that this rank will send and receive often, so that the transport can set up a
 * channel for each.  Messages of one pair and tag are received in the order in which they are sent;
 * each receive must have its send on the other rank.  Collective; repeating it is fine.  Over
 * comm/nccl also the errors of nccl.h. */
enum status comm_declare_p2p(const struct comm *c, const struct p2p_message *sends, int num_sends,
                             const struct p2p_message *receives, int num_receives);

/* Registers memory that many transfers will use, so that the transport need not copy it.  bytes 0
 * deregisters it, which must happen before the memory is freed.  comm/nccl then waits a few seconds
 * for all transfers in flight, and aborts them if they do not end. */
enum status comm_register_memory(const struct comm *c, void *at, size_t bytes);

/* Starts t on the group.  In a group of one reduce_scatter, shift and all_to_all copy x to own; the
 * others move nothing. */
enum status comm_start(const struct comm *c, struct transfer *t);
/* Returns when the transfer is complete; its buffers are the caller's again. */
enum status comm_wait(struct transfer *t);
/* Whether the group's transfers run: in a sizing pass, which has no buffers, only those of
 * simulated ranks, which are counted. */
static inline bool comm_transfers(const struct comm *c, bool sizing)
{
    return !sizing || !c->transport;
}
/* Starts and waits. */
enum status comm_run(const struct comm *c, struct transfer *t);

/* Collectives of host memory, also on groups whose transfers move device memory.  For a few
 * numbers: they block, and are not counted as traffic. */

/* values[i] becomes the reduction over ranks of values[i].  A NaN on any rank gives NaN on all. */
enum status comm_all_reduce(const struct comm *c, enum reduction how, double *values, size_t count);
/* The same for integers, exactly.  A sum must fit in an int64_t. */
enum status comm_all_reduce_int64(const struct comm *c, enum reduction how, int64_t *values,
                                  size_t count);
/* The sum over ranks, exactly: it does not depend on how terms are divided among ranks. */
enum status comm_all_reduce_exact(const struct comm *c, struct exact_sum *sum);
/* x is `size` parts of `bytes` each, by rank; each rank has set its own. */
enum status comm_all_gather_bytes(const struct comm *c, void *x, size_t bytes);
/* x becomes the root's. */
enum status comm_broadcast_bytes(const struct comm *c, int root, void *x, size_t bytes);

/* The group's name, "world" if it has none; and "all_gather of 12 float32", for messages. */
const char *comm_name(const struct comm *c);
void comm_describe(const struct collective *x, char *text, size_t size);

/* Agrees on whether any rank has failed (as ULFM's MPIX_Comm_agree): returns OK only if all ranks
 * pass OK, else on every rank the status of the most severe failure (DEVICE, then COMM, then all
 * others), of the lowest rank whose own it is, so that all take the same branch.  That rank keeps
 * its message and trace, also if all agree again; on the others the message names it.  A rank that
 * failed with another status logs its own message.  The failure then counts as shared, and on the
 * ranks that only name it as remote (status.h).  If the ranks cannot agree: this rank's own
 * failure, else that of the collective (COMM, ...). */
enum status comm_agree(const struct comm *c, enum status mine);
/* Whether this rank logs this thread's last failure, `s`, after which the run continues, or ends
 * for another reason: rank 0 does, so that its log has every failure, and a rank that failed
 * itself, as only it knows why. */
bool comm_logs_failure(const struct comm *c, enum status s);

/* For transports: out[i] = the sum of parts[0..size)[i], accumulated in f32 in the order above.
 * `out` may be one of the parts. */
void comm_sum(enum dtype dtype, const void *const *parts, int size, size_t count, void *out);
/* The same for doubles: `size` rows of `count`. */
void comm_sum_doubles(const double *rows, int size, size_t count, double *out);
