/* attention_few.h -- attention of a few queries over many keys, as decoding does it: every key and
 * value is read once, where it lies, and that is what takes the time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "ops/attention.h"

enum { FEW_QUERIES = 8 };

/* Keys [begin, end) that query t of row b sees. */
struct key_range {
    int32_t begin, end;
};
static inline struct key_range keys_seen(const struct attention *a, const int32_t *start_BT,
                                         const int32_t *end_BT, size_t b, size_t t)
{
    size_t at = b * (size_t)a->T + t;
    int32_t own = (int32_t)t + a->S - a->T + 1;
    struct key_range r = {start_BT ? start_BT[at] : 0, end_BT ? end_BT[at] : a->S};
    if (a->causal && r.end > own) r.end = own;
    return r;
}

/* attention_forward where a->T is at most FEW_QUERIES. */
enum status KERNEL(attention_few)(const struct attention *a, const struct attention_fwd *io,
                                  struct queue *on);
