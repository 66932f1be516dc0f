// SPDX-License-Identifier: Apache-2.0
#include "tensor/queue.h"

#include "backends/cpu/cpu.h"
#include "base/text.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/strict_device.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(queue_without_a_device_copies_and_zeroes_host_memory)
{
    struct queue queue = {.num_threads = 2};
    char from[] = "numbers", to[sizeof from];
    CHECK(!queue_device_allocator(&queue));
    CHECK(!queue_shared_allocator(NULL));
    CHECK_STATUS(OK, queue_copy(&queue, to, from, sizeof from));
    CHECK(!strcmp(to, from));
    CHECK_STATUS(OK, queue_zero(&queue, to, 3));
    CHECK(!memcmp(to, "\0\0\0bers", sizeof to));
    CHECK_STATUS(OK, queue_copy(NULL, to, from, 2));
    CHECK(!memcmp(to, "nu\0bers", sizeof to));
    CHECK_STATUS(OK, queue_wait(&queue));
}

TEST(queue_zero_clears_exactly_the_range_at_any_alignment)
{
    enum { MANY = (3 << 20) + 5 };
    struct queue queue = {.num_threads = 2};
    char *x = heap(MANY + 32);
    for (size_t at = 1; at <= 16; at += 15) {
        size_t left = 0;
        memset(x, 1, MANY + 32);
        CHECK_STATUS(OK, queue_zero(&queue, x + at, MANY));
        for (size_t i = 0; i < MANY + 32; i++) left += x[i] != 0;
        CHECK(left == 32 && x[at - 1] && !x[at] && !x[at + MANY - 1] && x[at + MANY]);
    }
    free(x);
}

TEST(sizing_queue_copies_nothing)
{
    struct queue queue = {.sizing = true};
    char x[] = "x";
    CHECK_STATUS(OK, queue_copy(&queue, NULL, NULL, 8));
    CHECK_STATUS(OK, queue_zero(&queue, x, 1));
    CHECK(x[0] == 'x');
}

static void push_range(struct queue *queue, const char *name)
{
    text_addf((struct text *)(void *)queue->scratch.base, "(%s", name);
}

static void pop_range(struct queue *queue)
{
    text_adds((struct text *)(void *)queue->scratch.base, ")");
}

TEST(spans_are_ranges_of_the_device_with_and_without_a_trace)
{
    static const struct device profiled = {.push_range = push_range, .pop_range = pop_range};
    struct text ranges = {0};
    struct trace trace = {0};
    struct queue queue = {.device = &profiled, .scratch = {.base = (void *)&ranges}};
    for (int i = 0; i < 2; i++) {
        queue.trace = i ? &trace : NULL;
        double outer = queue_begin_span(&queue, "step"), inner = queue_begin_span(&queue, "cast");
        queue_end_span(&queue, "cast", inner);
        queue_end_span(&queue, "step", outer);
    }
    CHECK(!strcmp(ranges.data, "(step(cast))(step(cast))"));
    CHECK(trace.count == 2 && !strcmp(trace.spans[1].name, "step"));
    text_release(&ranges), trace_release(&trace);
}

/* Other tests rely on the strict device, so it is tested, too. */
enum { N = 1000 };

struct strict_rig {
    struct queue *queue;
    struct arena own, shared;
    float *x, *y;
    double *sum;
};

static struct strict_rig rig_open(bool late)
{
    struct strict_rig r;
    CHECK_STATUS(OK, cpu_queue_open(&r.queue, 1, 0));
    strict_open(r.queue, &ops_cpu_reference, late);
    CHECK_STATUS(OK, arena_init(&r.queue->scratch, 1 << 16, queue_device_allocator(r.queue)));
    CHECK_STATUS(OK, arena_init(&r.own, 1 << 16, queue_device_allocator(r.queue)));
    CHECK_STATUS(OK, arena_init(&r.shared, 1 << 12, queue_shared_allocator(r.queue)));
    r.x = arena_alloc(&r.own, N, sizeof *r.x), r.y = arena_alloc(&r.own, N, sizeof *r.y);
    r.sum = arena_alloc(&r.shared, 1, sizeof *r.sum);
    return r;
}

static void rig_close(struct strict_rig *r)
{
    arena_release(&r->own), arena_release(&r->shared), arena_release(&r->queue->scratch);
    strict_close(r->queue);
    cpu_queue_close(r->queue);
}

static enum status fill_and_sum(struct strict_rig *r)
{
    float host[N];
    for (int i = 0; i < N; i++) host[i] = 2;
    struct cast_io move = {r->x, r->y};
    struct sum_squares_io squares = {r->y, r->sum};
    TRY(queue_copy(r->queue, r->x, host, sizeof host));
    TRY(cast(&strict_ops, &(struct cast){.n = N}, &move, r->queue));
    TRY(sum_squares(&strict_ops, &(struct sum_squares){.n = N}, &squares, r->queue));
    return STATUS_OK;
}

TEST(strict_device_computes_in_device_memory)
{
    struct strict_rig r = rig_open(false);
    float back[N];
    CHECK(strict_owns(r.x) && strict_owns(r.x + N - 1) && !strict_owns(r.sum));
    CHECK_STATUS(OK, fill_and_sum(&r));
    CHECK(*r.sum == 4.0 * N);
    CHECK_STATUS(OK, queue_zero(r.queue, r.y, 8));
    CHECK_STATUS(OK, queue_copy(r.queue, back, r.y, sizeof back));
    CHECK(back[0] == 0 && back[1] == 0 && back[2] == 2 && back[N - 1] == 2);
    rig_close(&r);
}

TEST(queue_host_copy_finds_where_device_memory_was_uploaded_from)
{
    struct strict_rig r = rig_open(false);
    float from[3] = {1, 2, 3}, back[3];
    CHECK(!queue_host_copy(r.queue, r.x));
    CHECK_STATUS(OK, queue_upload(r.queue, r.x, from, sizeof from));
    CHECK(queue_host_copy(r.queue, r.x) == from && queue_host_copy(r.queue, r.x + 2) == from + 2);
    CHECK(!queue_host_copy(r.queue, r.x + 3) && !queue_host_copy(r.queue, r.y));
    CHECK_STATUS(OK, queue_copy(r.queue, back, r.x, sizeof back));
    CHECK(!memcmp(back, from, sizeof back));
    CHECK_STATUS(OK, queue_upload(r.queue, r.y, from, sizeof from));
    CHECK(queue_host_copy(r.queue, r.y) == from && !queue_host_copy(r.queue, r.x));
    rig_close(&r);
}

TEST(late_device_does_nothing_until_queue_wait)
{
    struct strict_rig r = rig_open(true);
    float *seen = (float *)(void *)r.sum;
    CHECK_STATUS(OK, fill_and_sum(&r));
    CHECK(*r.sum == 4.0 * N); /* sum_squares is complete when it returns */
    *seen = 0;
    CHECK_STATUS(OK,
                 cast(&strict_ops, &(struct cast){.n = 1}, &(struct cast_io){r.y, seen}, r.queue));
    CHECK(*seen == 0);
    CHECK_STATUS(OK, queue_wait(r.queue));
    CHECK(*seen == 2);
    rig_close(&r);
}

/* The signal that ends a child process that accesses r->x. */
static int access_signal(const struct strict_rig *r, bool writes)
{
    int how;
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        volatile float *x = r->x;
        if (writes) x[1] = 1;
        _exit(writes ? 0 : (int)x[1] + 1);
    }
    CHECK(waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

TEST(host_access_to_strict_device_memory_faults)
{
    struct strict_rig r = rig_open(false);
    CHECK_STATUS(OK, fill_and_sum(&r));
    CHECK(access_signal(&r, false) == SIGSEGV);
    CHECK(access_signal(&r, true) == SIGSEGV);
    rig_close(&r);
}
