/* ops.h -- the dispatch table of kernels that a backend fills in.
 *
 * The model calls x_forward(ops, ...) of ops/x.h, which checks sizes and dispatches through this
 * table; the model does not depend on a backend.  Tables are immutable and live for the whole run.
 * Packed   A packed tensor has an opaque layout, chosen by the backend (as in oneDNN).  Only ops
 *          of one table access it, always as a whole, and each op is passed is_packed.  The layout
 *          depends only on rows, columns and dtype, and takes no more memory than plain rows.  The
 *          gradient of a packed tensor has the same layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

#include <stdbool.h>

#define OP(name, what, io)                                                                         \
    struct what;                                                                                   \
    struct io;
#include "ops/ops.def"
#undef OP

enum { GPU_LOGIT_ROWS = 4096 }; /* 1.05 GB of bf16 logits with a vocabulary of 128,256 */

struct ops {
    const char *backend; /* "cpu", "cuda", "hip" */
#define OP(name, what, io)                                                                         \
    enum status (*name)(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP
    bool computes_amax;   /* kernels compute `amax` of their results; otherwise a separate amax
                           follows */
    bool is_multi_tensor; /* adamw takes parts (update.h) */
    /* Tokens whose logits exist at a time, at least (model/head.h); 0: 1024.  After each chunk the
     * head's f32 weight gradient is read and written, which costs GPU GEMMs more than a CPU's. */
    int logit_rows;
    /* Whether GEMMs on this queue multiply FP8 bytes, so that ops quantize their results instead of
     * storing them (fused_quantize.h).  NULL: never. */
    bool (*has_native_fp8)(const struct queue *);
    /* True if all tensors of attention of these sizes can be packed; kernels may require whole
     * panels of tokens and of a head's elements.  NULL: never. */
    bool (*attention_can_pack)(const struct attention *);
};

/* For x_forward(ops, a, io, queue): OP_CALL calls the kernel in a span of the queue; OP_RUN also
 * returns. */
#define OP_CALL(entry)                                                                             \
    do {                                                                                           \
        double begin_ = queue_begin_span(queue, #entry);                                           \
        TRY(ops->entry(a, io, queue));                                                             \
        queue_end_span(queue, #entry, begin_);                                                     \
    } while (0)
#define OP_RUN(entry)                                                                              \
    do {                                                                                           \
        OP_CALL(entry);                                                                            \
        return STATUS_OK;                                                                          \
    } while (0)

/* The name of the first empty entry, or NULL. */
const char *ops_missing(const struct ops *o);
