/* Attention: cuDNN's where there is an engine for the shape, else our own kernel.
 *
 * A measuring queue takes the scratch of both: which of them a batch goes to depends on its
 * documents. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/flash_attention.h"
#include "backends/gpu/queue.h"

#if defined(GPU_CUDA)
#include "backends/gpu/vendor/cudnn_attention.h"

/* cuDNN starts with the first attention that is measured. */
static enum status open_cudnn(struct queue *on, struct attention_cudnn **out)
{
    struct gpu_queue *q = (struct gpu_queue *)on;
    if (!q->attention && on->measuring) {
        struct attention_cudnn *c;
        TRY(attention_cudnn_open(&c, q->stream, !q->any_order));
        q->attention = c;
    }
    *out = q->attention;
    return STATUS_OK;
}

static enum status library_forward(const struct attention *a, const struct attention_fwd *io,
                                   struct queue *on, bool *done)
{
    struct attention_cudnn *c;
    *done = false;
    TRY(open_cudnn(on, &c));
    if (c) TRY(attention_cudnn_forward(c, a, io, on, done));
    return STATUS_OK;
}

static enum status library_backward(const struct attention *a, const struct attention_bwd *io,
                                    struct queue *on, bool *done)
{
    struct attention_cudnn *c;
    *done = false;
    TRY(open_cudnn(on, &c));
    if (c) TRY(attention_cudnn_backward(c, a, io, on, done));
    return STATUS_OK;
}

void GPU_NAME(attention_close)(struct gpu_queue *q)
{
    attention_cudnn_close(q->attention);
    q->attention = NULL;
}
#else
static enum status library_forward(const struct attention *a, const struct attention_fwd *io,
                                   struct queue *on, bool *done)
{
    (void)a, (void)io, (void)on;
    *done = false;
    return STATUS_OK;
}

static enum status library_backward(const struct attention *a, const struct attention_bwd *io,
                                    struct queue *on, bool *done)
{
    (void)a, (void)io, (void)on;
    *done = false;
    return STATUS_OK;
}

void GPU_NAME(attention_close)(struct gpu_queue *q) { (void)q; }
#endif

enum status GPU_NAME(attention_forward)(const struct attention *a, const struct attention_fwd *io,
                                        struct queue *on)
{
    bool done;
    TRY(library_forward(a, io, on, &done));
    if (!done || on->measuring) TRY(GPU_NAME(flash_forward)(a, io, on));
    return STATUS_OK;
}

enum status GPU_NAME(attention_backward)(const struct attention *a, const struct attention_bwd *io,
                                         struct queue *on)
{
    bool done;
    TRY(library_backward(a, io, on, &done));
    if (!done || on->measuring) TRY(GPU_NAME(flash_backward)(a, io, on));
    return STATUS_OK;
}
