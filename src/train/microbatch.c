// SPDX-License-Identifier: Apache-2.0
#include "train/microbatch.h"

struct microbatch microbatch_from_batch(const struct batch *b, int i, int count, bool documents)
{
    struct microbatch micro = {.B = b->B / count, .T = b->T};
    size_t first = (size_t)i * (size_t)micro.B * (size_t)micro.T;
    if (!b->ids_BT && documents) micro.start_BT = micro.end_BT = microbatch_bounds;
    if (!b->ids_BT) return micro;
    micro.ids_BT = b->ids_BT + first;
    micro.labels_BT = b->labels_BT + first;
    micro.weight_BT = b->weight_BT ? b->weight_BT + first : NULL;
    micro.start_BT = documents ? b->start_BT + first : NULL;
    micro.end_BT = documents ? b->end_BT + first : NULL;
    micro.order_BT = b->order_BT + first, micro.inverse_order_BT = b->inverse_order_BT + first;
    return micro;
}
