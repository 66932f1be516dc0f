/* op.h -- what each operation reads, writes and computes, so that a call can be timed alone.
 *
 * Units    Bytes: inputs read once, outputs written once, buffers updated in place both; FLOPs:
 *          GEMMs and attention only, where a causal mask halves the count.
 * Memory   The caller provides the buffers that op_work lists. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/accumulate_gradients.h"
#include "ops/adamw_8bit.h"
#include "ops/attention.h"
#include "ops/bias.h"
#include "ops/context.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/fused_quantize.h"
#include "ops/kv_append.h"
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

enum op_content {
    CONTENT_NUMBERS,  /* uniform in [-1, 1) */
    CONTENT_POSITIVE, /* uniform in (0, 1) */
    CONTENT_IDS,      /* integers in [0, below) */
    CONTENT_NONE,     /* no buffer: NULL */
    CONTENT_FIRST,    /* an alias of the call's first buffer */
};
struct op_buffer {
    size_t count;
    enum dtype dtype;
    enum op_content content;
    int below;
};
enum { OP_BUFFERS = 12 };

/* Which ceiling limits it: FLOPs (compute-bound), or memory that is read, copied or updated in
 * place. */
enum op_bound { BOUND_PEAK, BOUND_READ, BOUND_COPY, BOUND_UPDATE };

struct op_work {
    struct op_buffer buffers[OP_BUFFERS]; /* in the order of the operation's io struct */
    int num_buffers;
    double flops, bytes;
    bool float8;          /* a GEMM of FP8 values */
    double scaling_bytes; /* with float8: of a pass that scales the result afterwards */
    enum op_bound bound;
};
void op_work(const struct op_call *c, struct op_work *w);

/* Fills a buffer with pseudorandom content: always the same, with period OP_FILL_REPEATS. */
enum { OP_FILL_REPEATS = 1 << 14 };
void op_fill(const struct op_buffer *b, void *to);
/* Executes one call.  With a sizing queue, buffers may be NULL. */
enum status op_run(const struct op_call *c, const struct ops *ops, void *const *buffers,
                   struct queue *queue);
