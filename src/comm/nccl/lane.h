/* lane.h (comm/nccl) -- a stream of its own beside a queue's: work that is ordered among itself,
 * and meets the queue's only where it is told to.
 *
 * Threads  A thread that did not open the queue calls lane_enter first. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

#include <stdbool.h>
#include <stddef.h>

struct lane {
    struct queue *on; /* borrowed */
    void *stream;     /* the runtime's; owned */
    void *ready;      /* how far the queue had come; owned */
};
/* A place among a lane's work. */
struct lane_mark {
    void *event; /* the runtime's; owned */
};

/* DEVICE: the runtime's complaint; so do all that follow. */
enum status lane_open(struct lane *l, struct queue *on);
void lane_close(struct lane *l);
enum status lane_mark_open(struct lane_mark *m);
void lane_mark_close(struct lane_mark *m);

/* What the lane is given next waits for all that the queue was asked for. */
enum status lane_follow(struct lane *l);
/* The mark is behind all that the lane was given so far; it may be set anew. */
enum status lane_set(struct lane *l, struct lane_mark *m);
/* What the queue is asked for next waits for the mark. */
enum status lane_join(struct lane *l, const struct lane_mark *m);
/* The host waits for it. */
enum status lane_wait(const struct lane_mark *m);
enum status lane_reached(const struct lane_mark *m, bool *reached);

/* The calling thread works with the queue's device from here on. */
enum status lane_enter(struct queue *on);
/* What tells a host's devices apart, whatever a process calls them. */
enum { LANE_DEVICE_NAME = 64 };
enum status lane_device(struct queue *on, char name[LANE_DEVICE_NAME]);
