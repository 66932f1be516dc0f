// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/watchdog.h"

#include "backends/cpu/cpu.h"
#include "comm/nccl/nccl.h"
#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "tensor/strict_device.h"
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

struct watchdog_rig {
    struct queue queue;
    struct watchdog *watchdog;
    struct communicator communicator;
    struct communicator_init init;
    float x[4];
};

static void rig_open(struct watchdog_rig *r, double timeout_s, int size)
{
    *r = (struct watchdog_rig){.communicator = {.name = "shard", .size = size, .close_s = 1},
                               .init = {.communicator = &r->communicator}};
    struct communicator_opening opening = {.inits = &r->init, .count = 1, .queue = &r->queue};
    CHECK_STATUS(OK, watchdog_open(&r->watchdog, &r->queue, timeout_s));
    CHECK_STATUS(OK, communicator_id(r->init.id));
    if (size == 1) CHECK_STATUS(OK, communicator_prepare(&opening));
    if (size == 1) CHECK_STATUS(OK, communicator_open(&opening));
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

static enum status enter(struct watchdog_rig *r)
{
    return watchdog_enter(r->watchdog, &r->communicator, "a call");
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
        CHECK_STATUS(OK, enter(&r));
        struct tracked_transfer *f = watched(&r);
        CHECK_STATUS(OK, communicator_issue(&r.communicator, &f->transfer, 0));
        CHECK_STATUS(OK, side_stream_record(&r.communicator.stream, &f->done));
        watchdog_issued(r.watchdog, f, true);
        CHECK_STATUS(OK, watchdog_leave(r.watchdog, STATUS_OK));
        watchdog_waited(r.watchdog, f);
    }
    CHECK_STATUS(OK, enter(&r));
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
        st = enter(&r);
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
        st = enter(&r);
        if (!st) st = watchdog_leave(r.watchdog, STATUS_OK);
    }
    stub_break(0, NULL);
    CHECK(st == STATUS_COMM);
    CHECK_MESSAGE("no route");
    CHECK_STATUS(COMM, enter(&r));
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

static void check_gave_up(struct watchdog_rig *r)
{
    CHECK_MESSAGE("mine");          /* the caller's failure is kept */
    CHECK(!r->communicator.handle); /* aborted */
    CHECK_STATUS(HANG, enter(r));
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

/* --- a call that does not return --- */

static enum status fail_to_abort(int log)
{
    struct watchdog_rig r;
    dup2(log, STDERR_FILENO);
    stub_break(0, "no route");
    stub_block_destroy(true);
    rig_open(&r, 1000, 1);
    sleep(30); /* then check_exit fails */
    return STATUS_OK;
}

/* Rank 1 does not open its communicator, or does not take part in the first sum. */
static enum status leave_out(struct comm *c, struct nccl *n, bool opens)
{
    unsigned char id[COMMUNICATOR_ID_BYTES];
    struct comm first;
    float x = 0;
    struct transfer sum = {TRANSFER_all_reduce, F32, 1, .x = &x};
    TRY(comm_split(c, 0, c->rank, &first));
    if (c->rank == 0 || opens) {
        TRY(nccl_wrap(&first, n, "shard", COMM_ALL));
    } else {
        TRY(comm_agree(&first, STATUS_OK));
        TRY(comm_broadcast_bytes(&first, 0, id, sizeof id));
    }
    if (c->rank == 0) TRY(comm_start(&first, &sum));
    return STATUS_OK;
}

static enum status run_rank(const struct comm *world, void *opens)
{
    struct comm c = *world;
    struct queue *queue;
    struct nccl *n;
    TRY(cpu_queue_open(&queue, 1, 0));
    strict_open(queue, &ops_cpu_reference, false);
    TRY(nccl_open(&n, queue, 1));
    return leave_out(&c, n, *(bool *)opens);
}

static enum status run_without_opening(int log)
{
    bool opens = false;
    dup2(log, STDERR_FILENO);
    return ranks_run(2, run_rank, &opens);
}

static enum status run_without_a_sum(int log)
{
    bool opens = true;
    dup2(log, STDERR_FILENO);
    return ranks_run(2, run_rank, &opens);
}

/* A process that runs `body` ends with this exit code, and reports this. */
static void check_exit(enum status (*body)(int log), enum status expected, const char *message)
{
    int out[2];
    char log[4096];
    CHECK(pipe(out) == 0);
    int code = test_in_child(body, out[1]);
    close(out[1]);
    ssize_t bytes = read(out[0], log, sizeof log - 1);
    log[bytes > 0 ? bytes : 0] = '\0';
    close(out[0]);
    if (!strstr(log, message)) fail_msg("expected \"%s\", got: %s", message, log);
    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == status_exit_code(expected));
}

/* NCCL must not be aborted meanwhile. */
TEST(watchdog_ends_the_process_if_a_call_waits_for_a_missing_rank)
{
    check_exit(run_without_opening, STATUS_HANG,
               "opening on rank 0 of 2 in group shard timed out after 1 s: a rank is gone");
    check_exit(run_without_a_sum, STATUS_HANG, "all_reduce");
}

TEST(watchdog_ends_the_process_if_an_abort_does_not_return)
{
    check_exit(fail_to_abort, STATUS_COMM, "no route");
}
