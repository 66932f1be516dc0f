/* Dispatches attention: to the vendor's library where it has an engine for the shape, else to our
 * own flash attention, which alone has sliding windows.
 *
 * A sizing pass reserves scratch for both: the choice may depend on the documents of the batch. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/flash_attention.h"
#include "backends/gpu/vendor_attention.h"

/* Whether the window hides keys: one of all keys does not. */
static bool is_windowed(const struct attention *a) { return a->window && a->window < a->S; }

enum status GPU_NAME(attention_forward)(const struct attention *a, const struct attention_fwd *io,
                                        struct queue *queue)
{
    bool done = false;
    if (!is_windowed(a)) TRY(GPU_NAME(vendor_attention_forward)(a, io, queue, &done));
    if (!done || queue->sizing) TRY(GPU_NAME(flash_attention_forward)(a, io, queue));
    return STATUS_OK;
}

enum status GPU_NAME(attention_backward)(const struct attention *a, const struct attention_bwd *io,
                                         struct queue *queue)
{
    bool done = false;
    if (!is_windowed(a)) TRY(GPU_NAME(vendor_attention_backward)(a, io, queue, &done));
    if (!done || queue->sizing) TRY(GPU_NAME(flash_attention_backward)(a, io, queue));
    return STATUS_OK;
}
