/* groups.h -- communicators of a mesh: the groups that a rank is in. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "parallel/mesh.h"

struct groups {
    struct comm of[GROUP_COUNT];
    struct comm_counts planned[GROUP_COUNT]; /* of groups_init_simulated */
};

/* Creates every group that this rank is in.  Collective over `world`. */
enum status groups_open(struct groups *g, const struct mesh *m, const struct comm *world);
/* Lets `wrap` make the groups that tensors of the model are sent over, pp to tp, transfer device
 * memory (staged.h, nccl.h); the others transfer host memory.  Those split from one of them may
 * make all transfers.  Skips groups of one.  Collective. */
enum status groups_wrap_device(struct groups *g,
                               enum status (*wrap)(struct comm *c, const char *name,
                                                   enum comm_use use, void *context),
                               void *context);
void groups_close(struct groups *g);
/* Simulated groups, for planning on a single rank: sizes and ranks are the mesh's, transfers are
 * counted but move nothing.  They point into *g, which must not move. */
void groups_init_simulated(struct groups *g, const struct mesh *m);
