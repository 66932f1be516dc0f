// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "train/microbatch.h"

TEST(microbatch_from_batch_is_a_run_of_rows)
{
    int32_t ids[12], labels[12], start[12], end[12], order[12], inverse[12];
    struct batch b = {.B = 4,
                      .T = 3,
                      .ids_BT = ids,
                      .labels_BT = labels,
                      .start_BT = start,
                      .end_BT = end,
                      .order_BT = order,
                      .inverse_order_BT = inverse};
    struct microbatch m = microbatch_from_batch(&b, 1, 2, true);
    CHECK(m.B == 2 && m.T == 3 && m.ids_BT == ids + 6 && m.labels_BT == labels + 6);
    CHECK(m.start_BT == start + 6 && m.end_BT == end + 6);
    CHECK(m.order_BT == order + 6 && m.inverse_order_BT == inverse + 6 && !m.head_tokens);
    CHECK(!microbatch_from_batch(&b, 1, 2, false).start_BT);
    b.ids_BT = NULL; /* a sizing pass must still see that there are documents */
    m = microbatch_from_batch(&b, 1, 2, true);
    CHECK(!m.ids_BT && m.start_BT && m.end_BT && !microbatch_from_batch(&b, 1, 2, false).start_BT);
}
