// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/block.h"

static size_t padded(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }

TEST(a_block_keeps_what_its_recompute_says)
{
    struct model m = {.shape = rig_shape(), .dtype = BF16, .plan = plan_alone()};
    const struct activations none = {0};
    struct activations a;
    size_t N = 10, D = 16, Q = 16, C = 32, F = 24;
    size_t cheap = 2 * padded(N * D * 2) + padded(N * F * 2); /* two norms, the gated product */
    size_t dear = padded(N * C * 2) + padded(N * Q * 2) + padded(N * D * 2) +
                  padded(N * 2 * F * 2) + 2 * padded(N * 4) + padded(N * 4 * 4);
    size_t kept[] = {cheap + dear, dear, 0};
    for (enum recompute kind = 0; kind <= RECOMPUTE_FULL; kind++) {
        struct arena own = {0}, shared = {0};
        activations_take(&m, N, kind, &none, &a, &own);
        CHECK(own.used == kept[kind] && a.recompute == kind);
        activations_share(&m, N, kind, &a, &shared);
        CHECK(own.used + shared.used == cheap + dear);
    }
}

TEST(what_a_block_does_not_keep_lies_in_the_shared_buffers)
{
    struct model m = {.shape = rig_shape(), .dtype = F32, .plan = plan_alone()};
    struct arena step;
    struct activations shared, a;
    CHECK_STATUS(OK, arena_init(&step, 1 << 16, NULL));
    activations_share(&m, 3, RECOMPUTE_SELECTIVE, &shared, &step);
    activations_take(&m, 3, RECOMPUTE_SELECTIVE, &shared, &a, &step);
    CHECK(a.norm1_ND == shared.norm1_ND && a.norm2_ND == shared.norm2_ND);
    CHECK(a.hidden_NF == shared.hidden_NF && a.hidden_NF && !shared.qkv_NC && a.qkv_NC);
    arena_release(&step);
}

TEST(offsets_from_nothing_are_nothing)
{
    float x[4];
    CHECK(element(NULL, 3, F32) == NULL);
    CHECK(element(x, 3, F32) == &x[3] && element(x, 2, BF16) == &x[1]);
}

struct crossings {
    struct plan base;
    int count;
    struct {
        enum boundary at;
        enum direction way;
        int columns;
    } seen[64];
};

static enum status note(const struct plan *p, enum boundary at, enum direction way,
                        struct crossing *x, struct queue *on)
{
    struct crossings *t = (struct crossings *)(uintptr_t)p;
    (void)on;
    CHECK(t->count < 64 && x->rows == 8 && x->dtype == F32 && x->x);
    t->seen[t->count].at = at, t->seen[t->count].columns = x->columns;
    t->seen[t->count++].way = way;
    return STATUS_OK;
}

TEST(boundaries_are_crossed_in_order_and_back)
{
    struct model_shape s = rig_shape();
    struct rig r;
    struct crossings t = {.base = {.parts = 1, .cross = note}};
    s.L = 1;
    rig_open(&r, &s, F32, 2, 4);
    CHECK_STATUS(OK, arena_init(&r.step, rig_measure(&r, model_train), NULL));
    r.m.plan = &t.base;
    CHECK_STATUS(OK, model_train(&r.m, &r.b, &r.step));
    CHECK(t.count == 2 * LOSS); /* which a whole vocabulary does not cross */
    for (int i = 0; i < LOSS; i++) {
        CHECK(t.seen[i].at == (enum boundary)i && t.seen[i].way == FORWARD);
        CHECK(t.seen[t.count - 1 - i].at == (enum boundary)i);
        CHECK(t.seen[t.count - 1 - i].way == BACKWARD && t.seen[i].columns == s.D);
    }
    rig_close(&r);
}
