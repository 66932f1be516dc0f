/* link.h (comm/nccl) -- a communicator of NCCL or RCCL, and the lane that it works on.
 *
 * Ranks    Opening and splitting are collective.  Links are independent of each other: none shares
 *          the library's resources with another, which would make each wait for the other's work.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "comm/nccl/lane.h"

enum { LINK_ID_BYTES = 128 };

struct link {
    const char *name; /* of the group it is for */
    int rank, size;
    void *comm; /* the library's; owned; NULL: closed, or cut off */
    struct lane lane;
};

extern const char link_library[]; /* "NCCL", "RCCL" */

/* What the ranks of a new communicator must have in common; made by one of them. */
enum status link_id(unsigned char id[LINK_ID_BYTES]);

/* Several at once, which other ranks may open in another order.  most_blocks: multiprocessors that
 * a transfer may hold; 0: as many as the library likes.  COMM: the library's complaint; so do all
 * that follow. */
struct link_plan {
    struct link *link; /* name, rank and size are set */
    unsigned char id[LINK_ID_BYTES];
};
enum status link_open(struct link_plan *plans, int count, int most_blocks, struct queue *on);
/* Those that give the same color, by key; color < 0: none.  out: as a plan's. */
enum status link_split(struct link *l, int color, int key, struct link *out);
/* What has been issued is over.  It need not be after link_cut. */
void link_close(struct link *l);
/* Ends what is under way, whatever the others do. */
void link_cut(struct link *l);

/* Issues the transfer on the link's lane; `peer` is the link's rank where the kind has one. */
enum status link_issue(struct link *l, const struct transfer *t, int peer);
/* What is issued in between begins at once, however much of it waits for other ranks. */
enum status link_issue_begin(void), link_issue_end(void);
/* COMM: something has gone wrong meanwhile. */
enum status link_check(const struct link *l);

/* Memory that transfers need not copy. */
enum status link_register(struct link *l, void *at, size_t bytes, void **handle);
void link_unregister(struct link *l, void *handle);
