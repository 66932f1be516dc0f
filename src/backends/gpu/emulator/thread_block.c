/* A thread that reaches a barrier suspends its fiber, and the next thread starts on another one; a
 * thread that returns without waiting leaves its fiber to the next thread.  So a kernel without
 * barriers runs as plain calls on one fiber. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/thread_block.h"

#include "backends/gpu/emulator/fiber.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32, MAX_SHARED_BYTES = 99 << 10 };

/* Threads of a warp or a block that wait for each other. */
struct barrier {
    const char *what, *file;
    int line, arrived, live; /* live: threads that have not returned */
    int waiting[MAX_THREADS];
};
struct warp {
    struct barrier barrier;
    unsigned phase;
    uint64_t active[2]; /* lanes that took part, in this phase and the previous one */
    struct warp_slot slots[2][64];
};
struct emulated_thread {
    struct grid_dim index;
    struct fiber *fiber;
    unsigned phase; /* of its last gather */
};

struct grid_dim *thread_block_thread_idx, thread_block_idx, thread_block_dim, thread_block_grid_dim;

/* State of the running block.  Global because kernels name it, as they do on a device. */
static const struct kernel_launch *launch;
static struct emulated_thread threads[MAX_THREADS];
static struct warp warps[MAX_WARPS];
static struct barrier block_barrier;
static int num_threads, num_started, current;
static int ready[MAX_THREADS], num_ready, first_ready; /* a ring of threads to resume */
static unsigned char shared[MAX_SHARED_BYTES] __attribute__((aligned(128)));
static struct fiber host, fibers[MAX_THREADS], *idle[MAX_THREADS], *running;
static int num_fibers, num_idle;

__attribute__((noreturn)) static void die(const char *file, int line, const char *what,
                                          const struct barrier *other)
{
    char text[512];
    struct grid_dim b = thread_block_idx;
    int end = snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u): %s", launch->name, b.x,
                       b.y, b.z, what);
    if (other)
        snprintf(text + end, sizeof text - (size_t)end, "; %d of %d wait at a %s at %s:%d",
                 other->arrived, other->live, other->what, other->file, other->line);
    status_bug(file, line, text);
}

static void resume_all(struct barrier *b, int except)
{
    for (int i = 0; i < b->arrived; i++)
        if (b->waiting[i] != except)
            ready[(first_ready + num_ready++) % MAX_THREADS] = b->waiting[i];
    b->arrived = 0;
}

/* Resumes the warp's lanes and starts its next phase. */
static void resume_warp(struct warp *w, int except)
{
    resume_all(&w->barrier, except);
    w->active[++w->phase & 1] = 0;
}

/* The next to run: a thread whose barrier is complete, else a thread that has not started, else,
 * when all have returned, the host. */
static struct fiber *next_fiber(void)
{
    if (num_ready) {
        struct fiber *f = threads[ready[first_ready]].fiber;
        first_ready = (first_ready + 1) % MAX_THREADS;
        num_ready--;
        return f;
    }
    if (num_started < num_threads) {
        BUG_IF(!num_idle);
        return idle[--num_idle];
    }
    for (int i = 0; block_barrier.live; i++) /* all wait, at different barriers */
        if (warps[i].barrier.arrived)
            die(block_barrier.file, block_barrier.line,
                "not all threads of the block reach this barrier", &warps[i].barrier);
    return &host;
}

static void switch_to(struct fiber *to)
{
    struct fiber *from = running;
    running = to;
    fiber_switch(from, to);
}

static void arrive(struct barrier *b, const char *what, const char *file, int line)
{
    if (!b->arrived) b->what = what, b->file = file, b->line = line;
    if (b->line != line || b->file != file) die(file, line, "threads are at different barriers", b);
    b->waiting[b->arrived++] = current;
}

static void wait_until_resumed(void)
{
    int self = current;
    switch_to(next_fiber());
    current = self;
    thread_block_thread_idx = &threads[self].index;
}

void thread_block_barrier(const char *file, int line)
{
    arrive(&block_barrier, "__syncthreads", file, line);
    if (block_barrier.arrived == block_barrier.live)
        resume_all(&block_barrier, current);
    else
        wait_until_resumed();
}

const struct warp_slot *thread_block_warp_gather(const void *value, size_t bytes, const char *file,
                                                 int line)
{
    struct warp *w = &warps[current / launch->warp_size];
    int lane = current % launch->warp_size;
    unsigned phase = threads[current].phase = w->phase;
    BUG_IF(bytes > WARP_SLOT_BYTES);
    arrive(&w->barrier, "warp-wide call", file, line);
    memcpy(w->slots[phase & 1][lane].bytes, value, bytes);
    w->active[phase & 1] |= (uint64_t)1 << lane;
    if (w->barrier.arrived == w->barrier.live)
        resume_warp(w, current);
    else
        wait_until_resumed();
    return w->slots[phase & 1];
}

void thread_block_check_lane(int lane, const char *file, int line)
{
    const struct warp *w = &warps[current / launch->warp_size];
    if (lane < 0 || lane >= launch->warp_size)
        die(file, line, "a shuffle from a lane outside the warp", NULL);
    if (!(w->active[threads[current].phase & 1] >> lane & 1))
        die(file, line, "a shuffle from an inactive lane", NULL);
}

void *thread_block_shared(void) { return shared; }

/* Completes the barriers that only waited for this thread. */
static void thread_returned(void)
{
    struct warp *w = &warps[current / launch->warp_size];
    block_barrier.live--, w->barrier.live--;
    if (w->barrier.live && w->barrier.arrived == w->barrier.live) resume_warp(w, -1);
    if (block_barrier.live && block_barrier.arrived == block_barrier.live)
        resume_all(&block_barrier, -1);
}

/* Runs one thread after another; never returns. */
__attribute__((noreturn)) static void run_threads(void *self)
{
    for (;;) {
        while (num_started < num_threads) {
            current = launch->warp_size == 64 ? num_threads - 1 - num_started : num_started;
            num_started++;
            threads[current].fiber = self;
            thread_block_thread_idx = &threads[current].index;
            launch->body(launch->closure);
            thread_returned();
        }
        idle[num_idle++] = self;
        switch_to(next_fiber());
    }
}

static void reset_block(void)
{
    enum { NAN_BYTE = 0xFF };
    memset(shared, NAN_BYTE, launch->shared_bytes);
    num_started = num_ready = 0;
    block_barrier.arrived = 0, block_barrier.live = num_threads;
    for (int i = 0; i * launch->warp_size < num_threads; i++) {
        int rest = num_threads - i * launch->warp_size;
        warps[i].barrier.arrived = 0;
        warps[i].barrier.live = rest < launch->warp_size ? rest : launch->warp_size;
        warps[i].active[0] = warps[i].active[1] = 0;
    }
}

void thread_block_run_grid(const struct kernel_launch *k)
{
    struct grid_dim g = k->grid, b = k->block;
    launch = k;
    num_threads = (int)(b.x * b.y * b.z);
    thread_block_dim = b, thread_block_grid_dim = g;
    for (; num_fibers < num_threads; num_fibers++) {
        struct fiber *f = &fibers[num_fibers];
        fiber_make(f, run_threads, f);
        idle[num_idle++] = f;
    }
    for (int i = 0; i < num_threads; i++) {
        unsigned at = (unsigned)i;
        threads[i].index = (struct grid_dim){at % b.x, at / b.x % b.y, at / b.x / b.y};
    }
    uint64_t blocks = (uint64_t)g.x * g.y * g.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t at = k->warp_size == 64 ? blocks - 1 - i : i;
        thread_block_idx = (struct grid_dim){(unsigned)(at % g.x), (unsigned)(at / g.x % g.y),
                                             (unsigned)(at / g.x / g.y)};
        reset_block();
        running = &host;
        switch_to(next_fiber());
    }
}
