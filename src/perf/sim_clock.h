/* sim_clock.h -- the step simulator's clock: the time of a rank on hardware that need not exist.
 *
 * It receives the rank's operations and transfers in the order in which the step's own code issues
 * them, so a transfer overlaps the same computation as in a real step.  An operation takes its
 * compute time or its memory time, whichever is longer (a roofline).  A transfer takes its latency
 * plus the time of the slowest link on its path (the alpha-beta cost model); transfers over the
 * same links are serialized.  Copies from and to host memory run on the streams of copy_stream.h.
 *
 * Units    Seconds, FLOPs, bytes.
 * Limits   Ranks are identical; there are no stragglers.  Launching an operation takes no time;
 *          transfers do not slow down computation; the network is never congested. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "parallel/mesh.h"
#include "tensor/copy_stream.h"
#include "tensor/hardware.h"

/* Assumed fractions of the peak rate that streaming through memory, and large transfers, reach. */
#define SIM_CLOCK_MEMORY_EFFICIENCY 0.8
#define SIM_CLOCK_LINK_EFFICIENCY   0.8

/* A group of ranks, seen from one of them; `on_node` of them are on its own node, itself
 * included. */
struct sim_group {
    enum group group;
    int size, on_node;
};

struct sim_clock {
    struct hardware hardware;
    double now;
    double microbatches_s; /* when the last microbatch ended; 0: not yet */
    double matmul_s, memory_s, exposed_s[GROUP_COUNT]; /* time of the microbatches, by cause */
    double links_free_s[2]; /* when a node's links, and the network, finish their last transfer */
    double p2p_s;           /* longest send from a pipeline stage to the next */
    double host_s;          /* time of the microbatches in which the queue waits for copies */
    double copies_s[STREAM_COUNT]; /* when each stream is done; the queue's: `now` */
    struct sim_transfer {
        const struct transfer *transfer;
        enum group group;
        double end_s;
    } * pending; /* owned */
    size_t num_pending, capacity;
    struct sim_event {
        const struct copy_event *event;
        double at_s;
    } * events; /* the latest recording of each; owned */
    size_t num_events;
};

void sim_clock_release(struct sim_clock *c);

/* An operation: FLOPs of its matrix multiplies, bytes read from and written to memory. */
void sim_clock_compute(struct sim_clock *c, enum dtype dtype, double flops, double bytes);
/* Starts a transfer that receives `bytes`; waits until a transfer completes. */
void sim_clock_start_transfer(struct sim_clock *c, const struct transfer *t,
                              const struct sim_group *group, double bytes);
void sim_clock_wait_transfer(struct sim_clock *c, const struct transfer *t);
/* As copy_stream_copy, _record and _wait. */
void sim_clock_copy(struct sim_clock *c, enum copy_stream stream, double bytes);
void sim_clock_record(struct sim_clock *c, enum copy_stream stream, const struct copy_event *e);
void sim_clock_wait_event(struct sim_clock *c, enum copy_stream stream, const struct copy_event *e);
/* Marks the end of the last microbatch: what follows runs once a step.  Later calls do nothing. */
void sim_clock_end_microbatches(struct sim_clock *c);
