/* operations.h -- what each operation reads, writes and computes, so that one call can be timed
 * alone.
 *
 * Units    Bytes that must move: inputs read once, outputs written once, what is changed in place
 *          both; FLOPs of products and of attention only, of which a causal mask leaves half.
 * Memory   Buffers are the caller's, as op_buffers lists them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/update.h"

enum op_id {
#define OP(name, what, io) OP_##name,
#include "ops/ops.def"
#undef OP
    OP_COUNT
};

/* An operation with its sizes. */
struct op_call {
    enum op_id op;
    union {
#define OP(name, what, io) struct what name;
#include "ops/ops.def"
#undef OP
    } what;
};

const char *op_name(enum op_id op);
/* "4096 x 768 -> 1280": two calls of an operation that say the same do the same. */
void op_sizes(const struct op_call *c, struct text *out);

enum op_content {
    CONTENT_NUMBERS,  /* in [-1, 1) */
    CONTENT_POSITIVE, /* in (0, 1) */
    CONTENT_IDS,      /* whole numbers in [0, below) */
    CONTENT_NONE,     /* no buffer: NULL */
    CONTENT_FIRST,    /* the call's first buffer once more */
};
struct op_buffer {
    size_t count;
    enum dtype dtype;
    enum op_content content;
    int below;
};
enum { OP_BUFFERS = 12 };

/* What bounds it: multiply-adds, or memory that is read, copied or changed in place. */
enum op_bound { BOUND_PEAK, BOUND_READ, BOUND_COPY, BOUND_UPDATE };

struct op_work {
    struct op_buffer buffers[OP_BUFFERS]; /* in the order of its struct of buffers */
    int num_buffers;
    double flops, bytes;
    bool float8; /* products are of eight bits */
    enum op_bound bound;
};
void op_work(const struct op_call *c, struct op_work *w);

/* Fills a buffer with what it says; the same every time, and again after so many elements. */
enum { OP_FILL_REPEATS = 1 << 14 };
void op_fill(const struct op_buffer *b, void *to);
/* One call; NULLs over a measuring queue. */
enum status op_run(const struct op_call *c, const struct ops *ops, void *const *buffers,
                   struct queue *queue);
