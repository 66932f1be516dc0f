// SPDX-License-Identifier: Apache-2.0
#include "tensor/copy_stream.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "ops/update.h"
#include "test.h"

enum { N = 100 };

struct rig {
    struct queue *queue;
    struct arena own, shared;
    float *x, *y;           /* the device's */
    float *source, *result; /* pinned */
    struct copy_event in, done, out;
};

static void open(struct rig *r, bool eager)
{
    *r = (struct rig){0};
    emulator_set_eager_copies(eager);
    CHECK_STATUS(OK, gpu_emu32_open(&r->queue, 0));
    CHECK_STATUS(OK, arena_init(&r->own, 4096, queue_device_allocator(r->queue)));
    CHECK_STATUS(OK, arena_init(&r->shared, 4096, queue_shared_allocator(r->queue)));
    r->x = arena_alloc(&r->own, N, sizeof *r->x);
    r->y = arena_alloc(&r->own, N, sizeof *r->y);
    r->source = arena_alloc(&r->shared, N, sizeof *r->source);
    r->result = arena_alloc(&r->shared, N, sizeof *r->result);
    for (int i = 0; i < N; i++) r->source[i] = (float)i;
}

static void close(struct rig *r)
{
    copy_stream_release_event(r->queue, &r->in);
    copy_stream_release_event(r->queue, &r->done);
    copy_stream_release_event(r->queue, &r->out);
    arena_release(&r->own), arena_release(&r->shared);
    gpu_emu32_close(r->queue);
    emulator_set_eager_copies(false);
}

/* result = 2 source, through x and y; without the waits of one side, or the other. */
static void double_source(struct rig *r, bool queue_waits, bool copies_wait)
{
    const struct axpby twice = {.n = N, .alpha = 2};
    CHECK_STATUS(OK, copy_stream_copy(r->queue, STREAM_IN, r->x, r->source, N * sizeof *r->x));
    CHECK_STATUS(OK, copy_stream_record(r->queue, STREAM_IN, &r->in));
    if (queue_waits) CHECK_STATUS(OK, copy_stream_wait(r->queue, STREAM_QUEUE, &r->in));
    CHECK_STATUS(OK, axpby(&gpu_emu32_ops, &twice, &(struct axpby_io){r->x, NULL, r->y}, r->queue));
    CHECK_STATUS(OK, copy_stream_record(r->queue, STREAM_QUEUE, &r->done));
    if (copies_wait) CHECK_STATUS(OK, copy_stream_wait(r->queue, STREAM_OUT, &r->done));
    CHECK_STATUS(OK, copy_stream_copy(r->queue, STREAM_OUT, r->result, r->y, N * sizeof *r->y));
    CHECK_STATUS(OK, copy_stream_record(r->queue, STREAM_OUT, &r->out));
    CHECK_STATUS(OK, copy_stream_wait(r->queue, STREAM_QUEUE, &r->out));
    CHECK_STATUS(OK, queue_wait(r->queue));
}

static bool is_doubled(const struct rig *r)
{
    for (int i = 0; i < N; i++)
        if (r->result[i] != 2 * (float)i) return false;
    return true;
}

TEST(copies_in_both_directions_follow_their_events)
{
    struct rig r;
    for (int eager = 0; eager < 2; eager++) {
        open(&r, eager);
        CHECK_STATUS(OK, copy_stream_wait(r.queue, STREAM_IN, &r.out)); /* not recorded yet */
        double_source(&r, true, true);
        CHECK(is_doubled(&r));
        double_source(&r, true, true);
        CHECK(is_doubled(&r));
        close(&r);
    }
}

TEST(the_emulator_finds_each_missing_wait)
{
    struct rig r;
    open(&r, false);
    double_source(&r, false, true);
    CHECK(!is_doubled(&r));
    close(&r);
    open(&r, true);
    double_source(&r, true, false);
    CHECK(!is_doubled(&r));
    close(&r);
}

TEST(the_host_waits_for_a_copy_to_it_but_not_for_those_behind)
{
    struct rig r;
    struct copy_event never = {0};
    open(&r, false);
    CHECK_STATUS(OK, copy_stream_synchronize(r.queue, &never));
    CHECK_STATUS(OK, queue_copy(r.queue, r.x, r.source, N * sizeof *r.x));
    CHECK_STATUS(OK, queue_zero(r.queue, r.y, N * sizeof *r.y));
    CHECK_STATUS(OK, queue_wait(r.queue));
    r.result[0] = r.result[1] = -1;
    CHECK_STATUS(OK, copy_stream_start_out(r.queue, r.result, r.x, N * sizeof *r.x, &r.in));
    CHECK_STATUS(OK, copy_stream_start_out(r.queue, r.result, r.y, N * sizeof *r.y, &r.out));
    CHECK(r.result[1] < 0);
    CHECK_STATUS(OK, copy_stream_synchronize(r.queue, &r.in));
    CHECK(r.result[1] == 1);
    CHECK_STATUS(OK, copy_stream_synchronize(r.queue, &r.out));
    CHECK(r.result[1] == 0);
    close(&r);
}

struct calls {
    struct copy_observer base;
    int copies, records, waits;
    size_t bytes[STREAM_COUNT];
};
static void on_copy(struct copy_observer *o, enum copy_stream stream, size_t bytes)
{
    struct calls *c = (struct calls *)o;
    c->copies++, c->bytes[stream] += bytes;
}
static void on_record(struct copy_observer *o, enum copy_stream stream, const struct copy_event *e)
{
    (void)stream, (void)e;
    ((struct calls *)o)->records++;
}
static void on_wait(struct copy_observer *o, enum copy_stream stream, const struct copy_event *e)
{
    (void)stream, (void)e;
    ((struct calls *)o)->waits++;
}

TEST(a_sizing_queue_only_reports_copies)
{
    struct calls calls = {.base = {on_copy, on_record, on_wait}};
    struct queue queue = {.sizing = true};
    struct copy_event e = {0};
    CHECK_STATUS(OK, copy_stream_copy(&queue, STREAM_IN, NULL, NULL, 7));
    queue.copy_observer = &calls.base;
    CHECK_STATUS(OK, copy_stream_copy(&queue, STREAM_IN, NULL, NULL, 7));
    CHECK_STATUS(OK, copy_stream_copy(&queue, STREAM_OUT, NULL, NULL, 9));
    CHECK_STATUS(OK, copy_stream_record(&queue, STREAM_OUT, &e));
    CHECK_STATUS(OK, copy_stream_wait(&queue, STREAM_QUEUE, &e));
    CHECK(calls.copies == 2 && calls.records == 1 && calls.waits == 1);
    CHECK(calls.bytes[STREAM_IN] == 7 && calls.bytes[STREAM_OUT] == 9 && !e.handle);
}
