/* channel.h (comm/nccl) -- ways for messages of one tag from one rank to another, which wait for
 * nothing else.
 *
 * The library carries messages without tags, in the order of their sends, and each of its calls
 * waits for those before it on the same communicator: so a message that is sent before another is
 * received, on both sides of a pair, would lock.  Therefore each way has a link of its own, of two
 * ranks: the sender is its rank 0. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/nccl/link.h"

struct channel {
    struct link link;
    enum transfer_kind kind; /* what this rank does */
    int peer, tag;
    struct channel *next;
};

/* The channel of a send or receive; NULL: there is none. */
struct channel *channel_find(struct channel *list, const struct transfer *t);
/* Opens those that are not in the list yet and puts them before it.  Collective over `c`, of which
 * only the host's numbers are needed; after a failure the list is what it was.  COMM: the library's
 * complaint, or a receive without its send. */
struct messages {
    const struct message *sends, *receives;
    int num_sends, num_receives;
};
enum status channels_open(struct channel **list, const struct comm *c, const char *name,
                          struct queue *on, const struct messages *m);
