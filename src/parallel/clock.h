/* clock.h -- what time it is for a rank that computes and moves data on hardware that is not at
 * hand.
 *
 * It is told what the rank does in the order the step's own code does it, so what a transfer runs
 * beside is what it runs beside there.  An operation takes as long as its products or its memory,
 * whichever is longer.  A transfer takes as long as the slower of the links it passes lets it, and
 * transfers over the same links take turns.
 *
 * Units    Seconds, FLOPs, bytes.
 * Limits   Ranks are alike and never late; starting an operation takes no time; what moves does not
 *          slow down what computes; the network is never crowded. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/mesh.h"
#include "tensor/hardware.h"

/* Shares of the peak that streams through memory, and large transfers, are taken to reach. */
#define CLOCK_MEMORY_SHARE 0.8
#define CLOCK_LINK_SHARE   0.8

/* A group of ranks, seen from one of them: those on its own node, itself too, are `near`. */
struct way {
    enum group group;
    int size, near;
};

struct clock {
    struct hardware hardware;
    double now;
    double micros; /* when the last micro-batch was through; 0: it is not yet */
    double products, memory, exposed[GROUP_COUNT]; /* what these micro-batches took */
    double idle[2]; /* when the last transfer over a node's links, or the network, is over */
    double message; /* what one from stage to stage of a pipeline takes */
    struct flight {
        const struct transfer *transfer;
        enum group group;
        double end;
    } * flights; /* owned; under way */
    size_t count, capacity;
};

void clock_release(struct clock *c);

/* An operation: products' FLOPs, bytes to and from memory. */
void clock_compute(struct clock *c, enum dtype dtype, double flops, double bytes);
/* A transfer of which this rank receives so many bytes starts; its end is waited for. */
void clock_start(struct clock *c, const struct transfer *t, const struct way *way, double bytes);
void clock_wait(struct clock *c, const struct transfer *t);
/* Every micro-batch is through: what follows is once a step.  Again: nothing. */
void clock_update(struct clock *c);
