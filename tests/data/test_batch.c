// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"
#include "test.h"

#include "backends/cpu/cpu.h"
#include "comm/ranks.h"
#include "ops/cross_entropy.h"
#include "tensor/strict_device.h"

/* Gives each token values that identify it. */
static void fill(struct batch *b, int b_first)
{
    for (int i = 0; i < b->B * b->T; i++) {
        b->ids_BT[i] = b_first + i, b->labels_BT[i] = 1000 + b_first + i;
        b->start_BT[i] = i % b->T / 3, b->end_BT[i] = b->T;
        if (b->has_weights) b->weight_BT[i] = (float)(b_first + i) / 4;
    }
}

TEST(batch_part_has_the_tokens_of_this_context_rank)
{
    enum { T = 12, PARTS = 3 };
    struct arena run = {0};
    struct batch whole, here;
    struct comm contexts = {.rank = 1, .size = PARTS};
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_alloc(&whole, 2, T, &run);
    batch_alloc_weights(&whole, &run);
    fill(&whole, 5);
    whole.valid = 20, whole.bytes = 21, whole.padding = 22;
    batch_alloc_part(&whole, &contexts, &here, &run);
    for (int causal = 0; causal < 2; causal++) {
        static const int positions[2][T / PARTS] = {{4, 5, 6, 7}, {2, 3, 8, 9}};
        batch_copy_part(&whole, &contexts, causal, &here);
        CHECK(here.B == 2 && here.T == T / PARTS && here.valid == 20 && here.bytes == 21);
        CHECK(here.padding == 22);
        for (int i = 0; i < 2 * here.T; i++) {
            int token = i / here.T * T + positions[causal][i % here.T];
            CHECK(here.ids_BT[i] == 5 + token && here.labels_BT[i] == 1005 + token);
            CHECK(here.start_BT[i] == token % T / 3 && here.end_BT[i] == T);
            CHECK(here.weight_BT[i] == (float)(5 + token) / 4);
        }
    }
    arena_release(&run);
}

TEST(batch_order_lists_tokens_with_a_label_first)
{
    enum { NONE = LABEL_IGNORED };
    static const int32_t labels[12] = {NONE, 4, NONE, 5, 6, NONE, 7, 8, 9, 1, 2, 3};
    static const int32_t order[6] = {1, 3, 4, 0, 2, 5}, inverse[6] = {3, 0, 4, 1, 2, 5};
    struct arena run = {0};
    struct batch b;
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_alloc(&b, 4, 3, &run);
    memcpy(b.labels_BT, labels, sizeof labels);
    batch_order_labels(&b, 2);
    CHECK(b.num_labels[0] == 3 && b.num_labels[1] == 6);
    CHECK(!memcmp(b.order_BT, order, sizeof order) &&
          !memcmp(b.inverse_order_BT, inverse, sizeof inverse));
    CHECK(!b.order_BT[11] && !b.inverse_order_BT[11]); /* not written: all have a label */
    batch_order_labels(&b, 4);
    CHECK(b.num_labels[1] == 2 && b.order_BT[3] == 0 && b.order_BT[5] == 2);
    CHECK(b.num_labels[3] == 3);
    arena_release(&run);
}

TEST(batch_part_without_context_parallelism_is_the_batch)
{
    struct arena run = {0};
    struct batch whole, here;
    struct comm alone = {.size = 1};
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_alloc(&whole, 2, 5, &run);
    size_t used = run.used;
    batch_alloc_part(&whole, &alone, &here, &run);
    CHECK(run.used == used && here.ids_BT == whole.ids_BT && here.T == 5);
    CHECK(!here.has_weights && !here.weight_BT);
    whole.valid = 9;
    batch_copy_part(&whole, &alone, true, &here);
    CHECK(here.valid == 9 && here.end_BT == whole.end_BT);
    arena_release(&run);
}

TEST(batch_copies_rows_and_pads_the_others)
{
    enum { T = 4 };
    struct arena run = {0};
    struct batch b, row;
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_alloc(&b, 2, T, &run);
    batch_alloc(&row, 1, T, &run);
    batch_alloc_weights(&b, &run), batch_alloc_weights(&row, &run);
    fill(&row, 7);
    row.valid = 3, row.bytes = 5, row.padding = 2;
    batch_pad_row(&b, 0);
    batch_copy_row(&b, 1, &row);
    CHECK(b.valid == 3 && b.bytes == 5 && b.padding == 2);
    CHECK(batch_count_valid(&b, 0, 1) == 0 && batch_count_valid(&b, 0, 2) == T);
    for (int t = 0; t < T; t++) {
        CHECK(b.ids_BT[t] == 0 && b.labels_BT[t] == LABEL_IGNORED);
        CHECK(b.start_BT[t] == 0 && b.end_BT[t] == T);
        CHECK(b.ids_BT[T + t] == 7 + t && b.labels_BT[T + t] == 1007 + t);
        CHECK(b.start_BT[T + t] == row.start_BT[t] && b.end_BT[T + t] == T);
        CHECK(b.weight_BT[t] == 0 && b.weight_BT[T + t] == (float)(7 + t) / 4);
        CHECK(!batch_is_valid(&b, (size_t)t) && batch_is_valid(&b, (size_t)(T + t)));
    }
    arena_release(&run);
}

static enum status broadcast(const struct comm *world, void *context)
{
    struct arena run = {0};
    struct batch b;
    (void)context;
    TRY(arena_init(&run, 1 << 12, NULL));
    batch_alloc(&b, 2, 3, &run);
    batch_alloc_weights(&b, &run);
    fill(&b, world->rank ? 100 : 5);
    const int64_t bytes = (INT64_C(1) << 53) + 1; /* no double holds this */
    b.valid = world->rank ? 3 : 6, b.bytes = world->rank ? 7 : bytes;
    enum status st = batch_broadcast(&b, world);
    bool same = b.valid == 6 && b.bytes == bytes;
    for (int i = 0; i < 6; i++) same &= b.ids_BT[i] == 5 + i && b.labels_BT[i] == 1005 + i;
    for (int i = 0; i < 6; i++) same &= b.weight_BT[i] == (float)(5 + i) / 4;
    arena_release(&run);
    TRY(st);
    RANK_CHECK(same);
    return STATUS_OK;
}

TEST(batch_broadcasts_from_rank_0)
{
    CHECK_STATUS(OK, ranks_run(1, broadcast, NULL));
    CHECK_STATUS(OK, ranks_run(3, broadcast, NULL));
}

TEST(batch_fill_random_stays_below_the_vocabulary)
{
    enum { B = 2, T = 50, V = 9 };
    struct arena run = {0};
    struct batch b;
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_alloc(&b, B, T, &run);
    batch_fill_random(&b, V);
    CHECK(b.valid == B * T);
    for (int i = 0; i < B * T; i++) {
        CHECK(b.ids_BT[i] >= 0 && b.ids_BT[i] < V && b.labels_BT[i] >= 0 && b.labels_BT[i] < V);
        CHECK(b.start_BT[i] == 0 && b.end_BT[i] == T);
    }
    arena_release(&run);
}

TEST(batch_upload_copies_to_a_device_and_is_the_same_batch_on_a_cpu)
{
    enum { B = 3, T = 7 };
    struct arena run = {0}, step = {0};
    struct queue *queue;
    struct batch b, there;
    int32_t ids[B * T];
    float weights[B * T];
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 0));
    batch_alloc(&b, B, T, &run), batch_alloc_weights(&b, &run);
    fill(&b, 5);
    CHECK_STATUS(OK, batch_upload(&b, queue, &step, &there));
    CHECK(there.ids_BT == b.ids_BT && there.weight_BT == b.weight_BT && !step.used);
    strict_open(queue, &ops_cpu_reference, true);
    CHECK_STATUS(OK, arena_init(&step, 1 << 12, queue_device_allocator(queue)));
    CHECK_STATUS(OK, batch_upload(&b, queue, &step, &there));
    CHECK(strict_owns(there.ids_BT) && strict_owns(there.weight_BT) && there.B == B);
    CHECK(queue_host_copy(queue, there.end_BT + 2) == b.end_BT + 2);
    CHECK_STATUS(OK, queue_copy(queue, ids, there.ids_BT, sizeof ids));
    CHECK_STATUS(OK, queue_copy(queue, weights, there.weight_BT, sizeof weights));
    CHECK(!memcmp(ids, b.ids_BT, sizeof ids) && !memcmp(weights, b.weight_BT, sizeof weights));
    arena_release(&run), arena_release(&step);
    strict_close(queue);
    cpu_queue_close(queue);
}
