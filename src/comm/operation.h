/* operation.h -- a transfer as a job of the progress thread, made of messages between ranks: what
 * transports of host memory have in common.
 *
 * An operation runs in stages, each of which posts messages and ends when all of them are complete.
 * A transport fills in struct message_library and puts operation_start, operation_wait and
 * operation_gather into its struct transport.
 * Order    Sums are taken in the order of comm.h: a rank receives all parts of a chunk, and adds
 *          them with comm_sum.
 * Memory   Records of operations are reused; those of transfers in flight stay until
 *          operation_wait.
 * Threads  The progress thread calls the library; the thread that starts transfers calls
 *          operation_start, operation_wait, operation_gather and operation_run. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "comm/heartbeat.h"
#include "comm/progress.h"

#include <pthread.h>

struct operation;
typedef enum status (*operation_stage)(struct operation *op, bool *is_over);

/* One end of a message; x is read if the operation sends.  Tags of messages that p2p transfers do
 * not send are 2^15 or higher. */
struct message {
    bool is_send;
    int peer, tag;
    char *x;
    size_t bytes;
};

struct message_library {
    size_t operation_bytes; /* of its records, which begin with a struct operation */
    void (*release_operation)(struct operation *op); /* frees what the record owns; NULL: nothing */
    /* Starts a message as part of this stage.  COMM: the library reports an error. */
    enum status (*post)(struct operation *op, struct message m);
    /* Whether all messages of the stage are complete.  COMM: one failed. */
    enum status (*test)(struct operation *op, bool *all);
    /* Bytes that the complete stage, one receive, got; not more than it posted. */
    enum status (*count_received)(struct operation *op, size_t *bytes);
    size_t max_chunk; /* elements that sums receive of a rank at a time; 0: transfer_chunk alone */
    operation_stage broadcast, all_gather; /* NULL: as messages between every pair of ranks */
};

/* What all groups of this process share. */
struct operation_engine {
    const struct message_library *library;
    struct progress_thread *progress;
    struct heartbeat *heartbeat;
    pthread_mutex_t lock; /* protects spare */
    struct operation *spare;
};

/* A transport's group begins with it. */
struct operation_group {
    struct operation_engine *engine;
    unsigned num_collectives; /* started so far, the same on all ranks: gives each its tag */
    char *gathered;           /* the buffer of operation_gather; gathered_bytes */
    size_t gathered_bytes;
    struct comm_counts counts;
};

struct operation {
    struct progress_job job; /* first: its step casts it to this */
    /* Called when all messages are complete: ends that stage and posts the next one's. */
    operation_stage next;
    const char *what;
    struct comm comm; /* the group it is on */
    struct transfer *t;
    int tag;
    size_t stage;   /* to be posted next */
    int num_posted; /* messages of this stage, or requests of the library */
    const void **parts;
    int max_parts;
    struct operation *spare;
};

/* Opens the engine without a heartbeat.  IO: no thread. */
enum status operation_engine_open(struct operation_engine *e, const struct message_library *library,
                                  struct progress_bell *bell);
/* Ends the heartbeat; `how` the run ended.  After a failure the other ranks know of it. */
void operation_engine_leave(struct operation_engine *e, enum status how);
/* Ends the thread; operations that are pending stay as they are. */
void operation_engine_close(struct operation_engine *e);
/* Frees what is left. */
void operation_engine_release(struct operation_engine *e);

/* A record, for a transport's own operations; `what` names it in messages. */
struct operation *operation_acquire(const struct comm *c, const char *what, operation_stage next);
void operation_recycle(struct operation *op);
/* Runs an operation that is not a transfer; NULL: it succeeded. */
const struct failure *operation_run(struct operation *op);

/* See struct transport. */
enum status operation_start(const struct comm *c, struct transfer *t);
enum status operation_wait(struct transfer *t);
enum status operation_gather(const struct comm *c, const void *mine, size_t bytes,
                             const void **all);
