// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

struct crossings {
    struct parallel_plan base;
    int count;
    struct {
        enum boundary at;
        enum direction direction;
        int columns;
    } seen[64];
};

static enum status record(const struct parallel_plan *p, enum boundary at, enum direction way,
                          struct crossing *x, struct queue *queue)
{
    struct crossings *t = (struct crossings *)(uintptr_t)p;
    (void)queue;
    CHECK(t->count < 64 && x->rows == 8 && x->dtype == F32 && x->x);
    t->seen[t->count].at = at, t->seen[t->count].columns = x->columns;
    t->seen[t->count++].direction = way;
    bool is_block_input = at == ATTN_IN || at == MLP_IN;
    CHECK(!x->overlapped == !(is_block_input && way == BACKWARD)); /* computes weight gradients */
    return boundary_do_overlapped(x);
}

TEST(block_crosses_boundaries_in_order_and_back)
{
    struct model_shape s = rig_shape();
    struct rig r;
    struct crossings t = {.base = {.parts = 1, .cross = record}};
    s.L = 1;
    rig_open(&r, &s, F32, 2, 4);
    CHECK_STATUS(OK, arena_init(&r.step, rig_size(&r, single_stage_train), NULL));
    r.m.plan = &t.base;
    CHECK_STATUS(OK, single_stage_train(&r.m, &r.b, &r.step));
    CHECK(t.count == 2 * LOSS); /* LOSS is crossed only with a sliced vocabulary */
    for (int i = 0; i < LOSS; i++) {
        CHECK(t.seen[i].at == (enum boundary)i && t.seen[i].direction == FORWARD);
        CHECK(t.seen[t.count - 1 - i].at == (enum boundary)i);
        CHECK(t.seen[t.count - 1 - i].direction == BACKWARD && t.seen[i].columns == s.D);
    }
    rig_close(&r);
}
