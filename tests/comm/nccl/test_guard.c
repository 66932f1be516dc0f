// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/guard.h"

#include "comm/nccl/stub.h"
#include "test.h"

#include <pthread.h>

struct guarded_rig {
    struct queue on;
    struct guard *guard;
    struct link link;
    struct link_plan plan;
    float x[4];
};

static void rig_open(struct guarded_rig *r, double most_s, int size)
{
    *r = (struct guarded_rig){.link = {.name = "shard", .size = size}, .plan = {.link = &r->link}};
    CHECK_STATUS(OK, guard_open(&r->guard, &r->on, most_s));
    CHECK_STATUS(OK, link_id(r->plan.id));
    if (size == 1) CHECK_STATUS(OK, link_open(&r->plan, 1, 0, &r->on));
    if (size > 1) CHECK_STATUS(OK, lane_open(&r->link.lane, &r->on)); /* nobody else comes */
    guard_add(r->guard, &r->link);
}

static void rig_close(struct guarded_rig *r)
{
    guard_remove(r->guard, &r->link);
    link_close(&r->link);
    guard_close(r->guard);
    CHECK(!stub_counts().comms && !stub_counts().lanes && !stub_counts().marks);
}

static struct flight *watched(struct guarded_rig *r)
{
    struct flight *f;
    CHECK_STATUS(OK, guard_take(r->guard, &f));
    f->link = &r->link;
    f->what = (struct transfer){TRANSFER_all_reduce, F32, 4, .x = r->x};
    CHECK_STATUS(OK, lane_set(&r->link.lane, &f->begun));
    guard_watch(r->guard, f);
    return f;
}

TEST(guard_lets_transfers_pass_that_come_to_their_end)
{
    struct guarded_rig r;
    rig_open(&r, 1000, 1);
    for (int i = 0; i < 100; i++) {
        CHECK_STATUS(OK, guard_enter(r.guard));
        struct flight *f = watched(&r);
        CHECK_STATUS(OK, link_issue(&r.link, &f->what, 0));
        CHECK_STATUS(OK, lane_set(&r.link.lane, &f->done));
        guard_issued(r.guard, f, true);
        CHECK_STATUS(OK, guard_leave(r.guard, STATUS_OK));
        guard_waited(r.guard, f);
    }
    CHECK_STATUS(OK, guard_enter(r.guard));
    CHECK_STATUS(IO, guard_leave(r.guard, status_fail(STATUS_IO, "x.c", 1, "mine")));
    rig_close(&r);
}

/* Nothing else ends the loops here: that it returns is the test. */
TEST(guard_gives_up_on_a_call_that_does_not_come_back)
{
    struct guarded_rig r;
    enum status st = STATUS_OK;
    rig_open(&r, 0.02, 2);
    struct flight *f = watched(&r);
    while (!st) {
        st = guard_enter(r.guard);
        if (!st) st = guard_leave(r.guard, STATUS_OK);
    }
    CHECK(st == STATUS_COMM);
    CHECK_MESSAGE("all_reduce of 4 float32 on rank 0 of 2 of the group shard is not over");
    guard_issued(r.guard, f, false);
    rig_close(&r);
}

TEST(guard_hears_what_the_library_complains_of)
{
    struct guarded_rig r;
    enum status st = STATUS_OK;
    stub_break(0, "no route");
    rig_open(&r, 1000, 1);
    while (!st) {
        st = guard_enter(r.guard);
        if (!st) st = guard_leave(r.guard, STATUS_OK);
    }
    stub_break(0, NULL);
    CHECK(st == STATUS_COMM);
    CHECK_MESSAGE("no route");
    CHECK_STATUS(COMM, guard_enter(r.guard));
    rig_close(&r);
}

static void stay(void *shut)
{
    pthread_mutex_lock(shut);
    pthread_mutex_unlock(shut);
}

TEST(guard_does_not_wait_for_ever_when_a_link_is_removed)
{
    pthread_mutex_t shut = PTHREAD_MUTEX_INITIALIZER;
    struct guarded_rig r;
    rig_open(&r, 0.05, 1);
    pthread_mutex_lock(&shut);
    struct flight *f = watched(&r);
    stub_push(r.link.lane.stream, stay, &shut);
    CHECK_STATUS(OK, lane_set(&r.link.lane, &f->done));
    guard_issued(r.guard, f, true);
    guard_waited(r.guard, f);
    guard_remove(r.guard, &r.link);
    CHECK(!r.link.comm); /* cut off */
    pthread_mutex_unlock(&shut);
    link_close(&r.link);
    guard_close(r.guard);
    CHECK(!stub_counts().comms && !stub_counts().lanes && !stub_counts().marks);
}

TEST(guard_forgets_a_call_that_failed_and_keeps_marks_for_the_next)
{
    struct guarded_rig r;
    rig_open(&r, 1000, 1);
    struct flight *f = watched(&r), *put_back;
    guard_issued(r.guard, f, false);
    CHECK_STATUS(OK, guard_take(r.guard, &put_back));
    guard_put_back(r.guard, put_back);
    CHECK_STATUS(OK, guard_take(r.guard, &f));
    CHECK(f == put_back && !f->link && stub_counts().marks <= 4);
    guard_put_back(r.guard, f);
    rig_close(&r);
}
