// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/watchdog.h"

#include "comm/nccl/stub.h"
#include "test.h"

#include <pthread.h>

struct watchdog_rig {
    struct queue queue;
    struct watchdog *watchdog;
    struct communicator communicator;
    struct communicator_init init;
    float x[4];
};

static void rig_open(struct watchdog_rig *r, double timeout_s, int size)
{
    *r = (struct watchdog_rig){.communicator = {.name = "shard", .size = size},
                               .init = {.communicator = &r->communicator}};
    CHECK_STATUS(OK, watchdog_open(&r->watchdog, &r->queue, timeout_s));
    CHECK_STATUS(OK, communicator_id(r->init.id));
    if (size == 1) CHECK_STATUS(OK, communicator_open(&r->init, 1, 0, &r->queue));
    if (size > 1)
        CHECK_STATUS(OK, side_stream_open(&r->communicator.stream,
                                          &r->queue)); /* the other rank never comes */
    watchdog_add(r->watchdog, &r->communicator);
}

static void rig_close(struct watchdog_rig *r)
{
    watchdog_remove(r->watchdog, &r->communicator);
    communicator_close(&r->communicator);
    watchdog_close(r->watchdog);
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
}

static struct tracked_transfer *watched(struct watchdog_rig *r)
{
    struct tracked_transfer *f;
    CHECK_STATUS(OK, watchdog_acquire(r->watchdog, &f));
    f->communicator = &r->communicator;
    f->transfer = (struct transfer){TRANSFER_all_reduce, F32, 4, .x = r->x};
    CHECK_STATUS(OK, side_stream_record(&r->communicator.stream, &f->begun));
    watchdog_track(r->watchdog, f);
    return f;
}

TEST(watchdog_lets_transfers_complete)
{
    struct watchdog_rig r;
    rig_open(&r, 1000, 1);
    for (int i = 0; i < 100; i++) {
        CHECK_STATUS(OK, watchdog_enter(r.watchdog));
        struct tracked_transfer *f = watched(&r);
        CHECK_STATUS(OK, communicator_issue(&r.communicator, &f->transfer, 0));
        CHECK_STATUS(OK, side_stream_record(&r.communicator.stream, &f->done));
        watchdog_issued(r.watchdog, f, true);
        CHECK_STATUS(OK, watchdog_leave(r.watchdog, STATUS_OK));
        watchdog_waited(r.watchdog, f);
    }
    CHECK_STATUS(OK, watchdog_enter(r.watchdog));
    CHECK_STATUS(IO, watchdog_leave(r.watchdog, status_fail(STATUS_IO, "x.c", 1, "mine")));
    rig_close(&r);
}

/* Only the watchdog ends the loop: the test is that it returns. */
TEST(watchdog_times_out_a_call_that_does_not_return)
{
    struct watchdog_rig r;
    enum status st = STATUS_OK;
    rig_open(&r, 0.02, 2);
    struct tracked_transfer *f = watched(&r);
    while (!st) {
        st = watchdog_enter(r.watchdog);
        if (!st) st = watchdog_leave(r.watchdog, STATUS_OK);
    }
    CHECK(st == STATUS_HANG);
    CHECK_MESSAGE("all_reduce of 4 float32 on rank 0 of 2 in group shard timed out");
    watchdog_issued(r.watchdog, f, false);
    rig_close(&r);
}

TEST(watchdog_reports_asynchronous_errors)
{
    struct watchdog_rig r;
    enum status st = STATUS_OK;
    stub_break(0, "no route");
    rig_open(&r, 1000, 1);
    while (!st) {
        st = watchdog_enter(r.watchdog);
        if (!st) st = watchdog_leave(r.watchdog, STATUS_OK);
    }
    stub_break(0, NULL);
    CHECK(st == STATUS_COMM);
    CHECK_MESSAGE("no route");
    CHECK_STATUS(COMM, watchdog_enter(r.watchdog));
    rig_close(&r);
}

static void block_on(void *shut)
{
    pthread_mutex_lock(shut);
    pthread_mutex_unlock(shut);
}

/* A transfer in flight that does not end.  The device does not even begin it, so it does not time
 * out. */
static struct tracked_transfer *stuck(struct watchdog_rig *r, pthread_mutex_t *shut)
{
    pthread_mutex_lock(shut);
    stub_push(r->communicator.stream.handle, block_on, shut);
    struct tracked_transfer *f = watched(r);
    CHECK_STATUS(OK, side_stream_record(&r->communicator.stream, &f->done));
    watchdog_issued(r->watchdog, f, true);
    return f;
}

static void check_gave_up(const struct watchdog_rig *r)
{
    CHECK_MESSAGE("mine");          /* the caller's failure is kept */
    CHECK(!r->communicator.handle); /* aborted */
    CHECK_STATUS(HANG, watchdog_enter(r->watchdog));
    CHECK_MESSAGE("all_reduce of 4 float32 on rank 0 of 1 in group shard was still in flight");
}

TEST(watchdog_does_not_wait_forever_for_a_removed_communicator)
{
    pthread_mutex_t shut = PTHREAD_MUTEX_INITIALIZER;
    struct watchdog_rig r;
    rig_open(&r, 0.05, 1);
    watchdog_waited(r.watchdog, stuck(&r, &shut));
    status_fail(STATUS_IO, "x.c", 1, "mine");
    watchdog_remove(r.watchdog, &r.communicator);
    check_gave_up(&r);
    pthread_mutex_unlock(&shut);
    communicator_close(&r.communicator);
    watchdog_close(r.watchdog);
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
}

TEST(watchdog_does_not_wait_forever_for_transfers_to_settle)
{
    pthread_mutex_t shut = PTHREAD_MUTEX_INITIALIZER;
    struct watchdog_rig r;
    rig_open(&r, 0.05, 1);
    stuck(&r, &shut);
    status_fail(STATUS_IO, "x.c", 1, "mine");
    watchdog_settle(r.watchdog);
    check_gave_up(&r);
    pthread_mutex_unlock(&shut);
    rig_close(&r);
}

TEST(watchdog_drops_failed_calls_and_reuses_their_events)
{
    struct watchdog_rig r;
    rig_open(&r, 1000, 1);
    struct tracked_transfer *f = watched(&r), *put_back;
    watchdog_issued(r.watchdog, f, false);
    CHECK_STATUS(OK, watchdog_acquire(r.watchdog, &put_back));
    watchdog_recycle(r.watchdog, put_back);
    CHECK_STATUS(OK, watchdog_acquire(r.watchdog, &f));
    CHECK(f == put_back && !f->communicator && stub_counts().events <= 4);
    watchdog_recycle(r.watchdog, f);
    rig_close(&r);
}
