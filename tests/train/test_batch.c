// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "train/batch.h"

/* Values that identify each token. */
static void fill(struct batch *b, int b_first)
{
    for (int i = 0; i < b->B * b->T; i++) {
        b->ids_BT[i] = b_first + i, b->labels_BT[i] = 1000 + b_first + i;
        b->start_BT[i] = i % b->T / 3, b->end_BT[i] = b->T;
    }
}

TEST(batch_local_has_the_tokens_of_this_rank)
{
    enum { T = 12, RANKS = 3 };
    struct arena run = {0};
    struct batch whole, local;
    struct comm contexts = {.rank = 1, .size = RANKS};
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_alloc(&whole, 2, T, &run);
    fill(&whole, 5);
    whole.valid = 20, whole.bytes = 21;
    batch_alloc_local(&whole, &contexts, &local, &run);
    for (int causal = 0; causal < 2; causal++) {
        static const int positions[2][T / RANKS] = {{4, 5, 6, 7}, {2, 3, 8, 9}};
        batch_copy_local(&whole, &contexts, causal, &local);
        CHECK(local.B == 2 && local.T == T / RANKS && local.valid == 20 && local.bytes == 21);
        for (int i = 0; i < 2 * local.T; i++) {
            int token = i / local.T * T + positions[causal][i % local.T];
            CHECK(local.ids_BT[i] == 5 + token && local.labels_BT[i] == 1005 + token);
            CHECK(local.start_BT[i] == token % T / 3 && local.end_BT[i] == T);
        }
    }
    arena_release(&run);
}

TEST(batch_local_of_a_single_rank_shares_the_arrays)
{
    struct arena run = {0};
    struct batch whole, local;
    struct comm alone = {.size = 1};
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_alloc(&whole, 2, 5, &run);
    size_t used = run.used;
    batch_alloc_local(&whole, &alone, &local, &run);
    CHECK(run.used == used && local.ids_BT == whole.ids_BT && local.T == 5);
    whole.valid = 9;
    batch_copy_local(&whole, &alone, true, &local);
    CHECK(local.valid == 9 && local.end_BT == whole.end_BT);
    arena_release(&run);
}

TEST(batch_microbatch_is_a_run_of_rows)
{
    int32_t ids[12], labels[12], start[12], end[12];
    struct batch b = {
        .B = 4, .T = 3, .ids_BT = ids, .labels_BT = labels, .start_BT = start, .end_BT = end};
    struct microbatch m = batch_microbatch(&b, 1, 2, true);
    CHECK(m.B == 2 && m.T == 3 && m.ids_BT == ids + 6 && m.labels_BT == labels + 6);
    CHECK(m.start_BT == start + 6 && m.end_BT == end + 6);
    CHECK(!batch_microbatch(&b, 1, 2, false).start_BT);
    b.ids_BT = NULL; /* a sizing pass must still see that there are documents */
    m = batch_microbatch(&b, 1, 2, true);
    CHECK(!m.ids_BT && m.start_BT && m.end_BT && !batch_microbatch(&b, 1, 2, false).start_BT);
}
