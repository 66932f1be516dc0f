/* Dispatches attention: to the vendor's library where it has an engine for the shape, else to our
 * own flash attention.
 *
 * A sizing pass reserves scratch for both: the choice may depend on the documents of the batch. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/flash_attention.h"
#include "backends/gpu/vendor_attention.h"

/* Without a window that hides no key. */
static struct attention effective(const struct attention *a)
{
    struct attention e = *a;
    if (e.window >= e.S) e.window = 0;
    return e;
}

enum status GPU_NAME(attention_forward)(const struct attention *a, const struct attention_fwd *io,
                                        struct queue *queue)
{
    struct attention e = effective(a);
    bool done = false;
    TRY(GPU_NAME(vendor_attention_forward)(&e, io, queue, &done));
    if (!done || queue->sizing) TRY(GPU_NAME(flash_attention_forward)(&e, io, queue));
    return STATUS_OK;
}

enum status GPU_NAME(attention_backward)(const struct attention *a, const struct attention_bwd *io,
                                         struct queue *queue)
{
    struct attention e = effective(a);
    bool done = false;
    TRY(GPU_NAME(vendor_attention_backward)(&e, io, queue, &done));
    if (!done || queue->sizing) TRY(GPU_NAME(flash_attention_backward)(&e, io, queue));
    return STATUS_OK;
}
