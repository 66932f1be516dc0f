/* nccl.h (comm/nccl) -- groups whose transfers move device memory, by NCCL or RCCL, beside the
 * queue's work.
 *
 * Order    A transfer begins when the work that the queue had at comm_start is done, and work that
 *          the queue gets after comm_wait begins when the transfer is over.  The host waits for
 *          neither, except where the group has an observer, so that timestamps are
 *          accurate.
 * Sums     Use the library's order, not that of comm.h; a sum of bf16 is rounded each time a rank
 *          adds to it.  All ranks of a group get the same bits, and the same ranks on the same
 *          nodes get them run after run (nccl_request_fixed_order); another layout, or the CPU,
 *          gets others.
 * Memory   The library allocates its own for each group and channel.  transfer.work is unused.
 * Ranks    One thread, the queue's, makes all calls.  Every rank needs a device of its own: with
 *          two ranks on one device NCCL hangs.  A group of one has no communicator.
 * Messages A declared message (comm_declare_p2p) has a channel, with its own stream and
 *          communicator, so a send delays only later messages of the same channel.  Other messages
 *          are staged through the host (comm/staged).
 * Streams  A group has a stream of its own.  One split from another uses the queue's, as callers
 *          wait for its few transfers at once; one of a single rank, or of messages only, has none.
 * Errors   COMM: an error of the library; HANG: a timeout, or a transfer that is still in flight
 *          when memory or its group is released (watchdog.h).  After the first, every call fails
 *          with it, the collectives of host memory too.  If a call of the library does not return,
 *          because a rank never makes it, the process reports that and ends.
 *          What opens communicators (nccl_wrap, comm_split, comm_declare_p2p) also fails with
 *          MEMORY or DEVICE (communicator.h), and in a pipeline with CONFIG or UNSUPPORTED
 *          (NCCL_HARDWARE_QUEUES). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

struct nccl;
struct text;

/* Opens NCCL or RCCL; call before any other function here except nccl_set_launch_order and
 * nccl_request_fixed_order, which come first.  UNSUPPORTED: it is not installed, or too old. */
enum status nccl_load(void);

/* Hardware queues that a rank requests, and the driver's variable for their number, which it reads
 * when it starts.  Streams that share one wait for each other in the order in which the host gave
 * them work.  CUDA has at most 32, and does not document which streams share one; the first 32, we
 * assume, do not.  HIP gives each stream a queue of its own until that many exist of its priority,
 * or, since July 2026, of all priorities (acquireQueue in clr's rocdevice.cpp), and has no maximum.
 * Its default is 4: then RCCL's streams, which wait for transfers to end, may share the queue of
 * kernels, and nothing overlaps; and since December 2025 HIP moves streams between queues that they
 * outnumber, unless DEBUG_HIP_DYNAMIC_QUEUES is 0, as machine/gpu.c sets it.
 *
 * Without channels sharing cannot hang.  All ranks run the same step, so there is one order of all
 * transfers, shifts included, in which each rank starts its own.  What a rank gives its streams
 * waits only for what it gave them before, and for the same transfer on other ranks.  So the first
 * transfer in that order that has not ended can always proceed.
 *
 * Stages of a pipeline have no such order: a receive that is posted early waits for a rank that may
 * need this rank's result first.  There each stream needs a hardware queue of its own, or the run
 * is refused: CONFIG if the user has set the variable to fewer queues than the rank has streams,
 * UNSUPPORTED if those are more than nccl_max_queues.  A rank has at most 32, with RCCL 42
 * (nccl_num_streams): the queue's, two for copies, and the default stream, which zeroes device
 * allocations; their own and those of the library, NCCL_STREAMS or RCCL_STREAMS, for the groups
 * replicate, shard, cp and tp and for four channels, whatever the schedule; and those of the
 * library for the ranks with the same key/value heads and for those with the same embedding.  NCCL
 * since 2.26 opens one more, which is not counted: it has no work unless NCCL_LAUNCH_ORDER_IMPLICIT
 * is set (strongstream.cc).
 *
 * RCCL's third stream of a communicator (sideStream in its comm.h) allocates memory.  Since
 * November 2025 there is one of a process (github.com/ROCm/rccl/pull/2063), since August 2026 only
 * while communicators open and connect (github.com/ROCm/rocm-systems/pull/10092), but HIP since
 * December 2025 keeps the queues of closed streams.  The version does not tell, so every RCCL
 * counts as having it.
 *
 * An AMD GPU runs AMD_GPU_QUEUES queues at once, busy or idle, and time-slices more of them, for
 * milliseconds each (rocm.docs.amd.com/en/develop/conceptual/oversubscription.html).  That cannot
 * hang, but is slow: rank 0 warns.  AMD_OTHER_QUEUES are the stream above that RCCL opens, too, and
 * HIP's own for copies (xferQueue in rocdevice.cpp). */
enum { NCCL_HARDWARE_QUEUES = 32, RCCL_HARDWARE_QUEUES = 48 };
enum { NCCL_STREAMS = 2, RCCL_STREAMS = 3 };
enum { AMD_GPU_QUEUES = 24, AMD_OTHER_QUEUES = 2 };
/* Of this program's library. */
extern const char nccl_title[]; /* NCCL or RCCL */
extern const char nccl_queues_variable[];
extern const int nccl_max_queues, nccl_library_streams;
extern const int nccl_gpu_queues; /* that a GPU of this program runs at once; 0: no such limit */
/* Appends a warning if `streams` of a rank and AMD_OTHER_QUEUES exceed AMD_GPU_QUEUES. */
void nccl_warn_of_amd_queues(int streams, struct text *out);

/* Sums have the same order in every run, at the price of NVLink SHARP, unless the user has set
 * NCCL_NVLS_ENABLE.  Call before the first communicator opens. */
void nccl_request_fixed_order(void);

/* Transfers of different groups may begin in any order, unless the user has set
 * NCCL_LAUNCH_ORDER_IMPLICIT; in a pipeline, which would hang with it, also then, with a warning.
 * Call before the first communicator opens. */
void nccl_set_launch_order(bool has_pipeline);

/* Loads it, and appends "NCCL 2.28.3". */
enum status nccl_describe(struct text *out);
/* Loads it, and makes every kind of transfer on this device in a group of one.  COMM: the library
 * failed, or a result is not what was sent. */
enum status nccl_self_test(struct queue *queue);

/* The state that a rank's groups share.  timeout_s: time limit of a call, such as one that opens
 * communicators, and of a transfer from when the device begins it.  IO: no thread. */
enum status nccl_open(struct nccl **out, struct queue *queue, double timeout_s);
/* All its groups have been released.  NULL is fine. */
void nccl_close(struct nccl *n);

/* Turns *c, a group that carries host memory, into such a group, and so all groups split from it.
 * It owns the wrapped group, and keeps its counts.  Collectives of host memory go to the wrapped
 * group.  `name` appears in messages and must outlive the group.  `use`: COMM_ONLY_MESSAGES opens
 * no communicator for the group; COMM_ONLY_SHIFTS limits it to nccl_shift_blocks multiprocessors.
 * Collective.  On failure *c is unchanged. */
enum status nccl_wrap(struct comm *c, struct nccl *n, const char *name, enum comm_use use);
/* Multiprocessors that a shift may occupy.  Within a node NCCL divides a communicator's channels by
 * its ranks for each message, unless a channel's part exceeds 16 MiB (scheduleP2pTasksToPlan in
 * enqueue.cc).  So the limit grows with the group: in groups of up to 8 ranks a message has
 * four channels. */
int nccl_shift_blocks(int size);
/* Streams that this rank has now if the library opens `each` for a communicator. */
int nccl_num_streams(const struct nccl *n, int each);

/* The first two ranks that share a device; -1, -1: each rank has its own.  Collective over a group
 * that carries host memory. */
struct nccl_pair {
    int first, second;
};
enum status nccl_same_device(const struct comm *world, struct queue *queue, struct nccl_pair *out);
