/* p2p_channel.h (comm/nccl) -- a channel for point-to-point messages of one tag from one rank to
 * another, which wait for no other transfers.
 *
 * NCCL has no tags: it matches messages in the order of the calls, and each call on a communicator
 * waits for those before it.  Two ranks that both send before they receive would deadlock.
 * Therefore every channel has a communicator of two ranks, with a stream, of its own; rank 0 is
 * the sender. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/nccl/communicator.h"

/* Streaming multiprocessors that a message occupies while it waits for the other rank.  In a
 * pipeline that is nearly all the time, and messages need little bandwidth.  Not measured. */
enum { P2P_CHANNEL_BLOCKS = 2 };

struct p2p_channel {
    struct communicator communicator;
    enum transfer_kind kind; /* send or receive: what this rank does */
    int peer, tag;
    struct p2p_channel *next;
};

/* The channel of a send or receive; NULL: none is open. */
struct p2p_channel *p2p_channel_find(struct p2p_channel *list, const struct transfer *t);

struct p2p_messages {
    const struct p2p_message *sends, *receives;
    int num_sends, num_receives;
};
/* How many of the messages have no channel yet. */
int p2p_channel_count_missing(struct p2p_channel *list, const struct p2p_messages *m);
/* Opens a channel for each message that has none yet, and prepends it to the list.  Collective over
 * `c`, of which only collectives of host memory are used.  On failure the list is unchanged.  COMM:
 * the library reports an error, or a receive has no send.  DEVICE, MEMORY: as communicator.h. */
enum status p2p_channel_open(struct p2p_channel **list, const struct comm *c, const char *name,
                             struct queue *queue, const struct p2p_messages *m);
