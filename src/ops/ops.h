/* ops.h -- the table of kernels a backend fills in.
 *
 * The model calls x_forward(ops, ...) of ops/x.h, which checks sizes and then goes through this
 * table; it never names a backend.  Tables are immutable and live for the whole run. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

#include <stdbool.h>

/* A tensor that is private is seen by operations of one table only, whole, and each is told so: it
 * may lie as they agree on, which depends on rows, columns and dtype alone, and takes no more
 * memory than its rows do.  Its gradient lies as it does. */

#define OP(name, what, io)                                                                         \
    struct what;                                                                                   \
    struct io;
#include "ops/ops.def"
#undef OP

struct ops {
    const char *backend; /* "cpu", "cuda", "hip" */
#define OP(name, what, io)                                                                         \
    enum status (*name)(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP
    bool finds_largest; /* slots fill in `largest` of their results; else amax follows them */
    /* Whether all tensors of attention may be private, whose kernels then want whole panels of
     * tokens and of a head's elements.  NULL: never. */
    bool (*attention_keeps)(const struct attention *);
};

/* In x_forward(ops, a, io, on): calls the slot, and tells the queue's trace; and ends it. */
#define OP_CALL(slot)                                                                              \
    do {                                                                                           \
        double begin_ = trace_begin(on->trace);                                                    \
        TRY(ops->slot(a, io, on));                                                                 \
        trace_end(on->trace, #slot, begin_);                                                       \
    } while (0)
#define OP_RUN(slot)                                                                               \
    do {                                                                                           \
        OP_CALL(slot);                                                                             \
        return STATUS_OK;                                                                          \
    } while (0)

/* base with every slot that `over` fills replaced: cpu_fast over cpu_reference. */
struct ops ops_overlay(struct ops base, const struct ops *over);

/* Name of the first empty slot, or NULL. */
const char *ops_missing(const struct ops *o);
