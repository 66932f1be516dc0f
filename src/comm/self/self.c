// SPDX-License-Identifier: Apache-2.0
#include "comm/self/self.h"

#include <string.h>

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    (void)c, (void)color, (void)key;
    *out = comm_self();
    return STATUS_OK;
}

static void release(struct comm *c) { (void)c; }

/* Of one rank's values, each is its own sum and its own maximum. */
static enum status reduce(const struct comm *c, enum reduction how, double *values, size_t count)
{
    (void)c, (void)how, (void)values, (void)count;
    return STATUS_OK;
}

static enum status start(const struct comm *c, struct transfer *t)
{
    (void)c;
    BUG_IF(t->kind == TRANSFER_send || t->kind == TRANSFER_receive); /* there is nobody */
    if (t->kind == TRANSFER_reduce_scatter && t->own != t->x)
        memcpy(t->own, t->x, t->count * dtype_bytes(t->dtype));
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    (void)t;
    return STATUS_OK;
}

struct comm comm_self(void)
{
    static const struct transport self = {"self", split, release, start, wait, reduce, NULL, NULL};
    return (struct comm){.rank = 0, .size = 1, .transport = &self};
}
