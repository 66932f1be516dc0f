/* A thread that reaches a barrier suspends its fiber, and the next thread starts on another one; a
 * thread that returns without waiting leaves its fiber to the next thread.  So a kernel without
 * barriers runs as plain calls on one fiber. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/thread_block.h"

#include "backends/gpu/emulator/fiber.h"
#include "backends/gpu/emulator/memory_check.h"
#include "base/heap.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { MAX_THREADS = MAX_WARPS * 32, MAX_SHARED_BYTES = 99 << 10 };

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
/* A cp.async in flight. */
struct async_copy {
    void *to;
    const void *from, *caller;
    const char *file;
    int line;
    unsigned char source[ASYNC_COPY_BYTES]; /* when it was issued */
    int group;
};
struct emulated_thread {
    struct grid_dim index;
    struct warp *warp;
    int lane;
    struct fiber *fiber;
    unsigned phase; /* of its last gather */
    struct async_copy *copies;
    int num_copies, group; /* group: of the next copy */
};

struct grid_dim *thread_block_thread_idx, thread_block_idx, thread_block_dim, thread_block_grid_dim;
struct memory_check_clock memory_check_clock;
const struct memory_check *memory_check;

static const char warp_sync[] = "__syncwarp"; /* the `what` of a barrier */

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

/* Resumes a complete barrier's threads. */
static void resume_all(struct barrier *b, int except)
{
    for (int i = 0; i < b->arrived; i++)
        if (b->waiting[i] != except)
            ready[(first_ready + num_ready++) % MAX_THREADS] = b->waiting[i];
    b->arrived = 0;
}

/* Resumes all threads at __syncthreads. */
static void resume_block(int except)
{
    memory_check_clock.block_synced = ++memory_check_clock.now;
    resume_all(&block_barrier, except);
}

/* Resumes the warp's lanes and starts its next phase. */
static void resume_warp(struct warp *w, int except)
{
    if (w->barrier.what == warp_sync)
        memory_check_clock.warp_synced[w - warps] = ++memory_check_clock.now;
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

static void set_current(int thread)
{
    current = memory_check_clock.thread = thread;
    memory_check_clock.fiber = threads[thread].fiber;
    thread_block_thread_idx = &threads[thread].index;
}

static void wait_until_resumed(void)
{
    int self = current;
    switch_to(next_fiber());
    set_current(self);
}

void thread_block_barrier(const char *file, int line)
{
    arrive(&block_barrier, "__syncthreads", file, line);
    if (block_barrier.arrived == block_barrier.live)
        resume_block(current);
    else
        wait_until_resumed();
}

static const struct warp_slot *gather(const void *value, size_t bytes, const char *what,
                                      const char *file, int line)
{
    struct emulated_thread *t = &threads[current];
    struct warp *w = t->warp;
    unsigned phase = t->phase = w->phase;
    BUG_IF(bytes > WARP_SLOT_BYTES);
    arrive(&w->barrier, what, file, line);
    memcpy(w->slots[phase & 1][t->lane].bytes, value, bytes);
    w->active[phase & 1] |= (uint64_t)1 << t->lane;
    if (w->barrier.arrived == w->barrier.live)
        resume_warp(w, current);
    else
        wait_until_resumed();
    return w->slots[phase & 1];
}

const struct warp_slot *thread_block_warp_gather(const void *value, size_t bytes, const char *file,
                                                 int line)
{
    return gather(value, bytes, "warp-wide call", file, line);
}

void thread_block_warp_sync(const char *file, int line)
{
    gather("", 0, warp_sync, file, line);
    thread_block_check_all_lanes(file, line);
}

void thread_block_check_lane(int lane, const char *file, int line)
{
    if (lane < 0 || lane >= launch->warp_size)
        die(file, line, "a shuffle from a lane outside the warp", NULL);
}

void thread_block_check_all_lanes(const char *file, int line)
{
    const struct emulated_thread *t = &threads[current];
    uint64_t all = launch->warp_size == 64 ? UINT64_MAX : UINT32_MAX;
    if (t->warp->active[t->phase & 1] != all)
        die(file, line, "not all lanes of the warp take part in this call", NULL);
}

void *thread_block_shared(void) { return shared; }

/* --- cp.async --- */

static void complete_copy(const struct async_copy *c)
{
    static const unsigned char zeros[ASYNC_COPY_BYTES];
    if (c->from && memcmp(c->source, c->from, sizeof c->source))
        die(c->file, c->line, "the source of this cp.async has changed before it was waited for",
            NULL);
    memcpy(c->to, c->from ? c->from : zeros, sizeof c->source);
    if (memory_check)
        memory_check->async_copy(c->to, c->from, sizeof c->source, COPY_COMPLETE, c->caller);
}

void thread_block_copy_async(void *to, const void *from, const char *file, int line)
{
    struct emulated_thread *t = &threads[current];
    struct async_copy c = {.to = to,
                           .from = from,
                           .caller = __builtin_return_address(0),
                           .file = file,
                           .line = line,
                           .group = t->group};
    if (memory_check) memory_check->async_copy(to, from, sizeof c.source, COPY_ISSUED, c.caller);
    if (from) memcpy(c.source, from, sizeof c.source);
    if (launch->warp_size == 64) {
        complete_copy(&c);
        return;
    }
    t->copies = heap_grow(t->copies, (size_t)t->num_copies + 1, sizeof *t->copies);
    t->copies[t->num_copies++] = c;
}

void thread_block_commit_copies(void) { threads[current].group++; }

void thread_block_wait_copies(int pending)
{
    struct emulated_thread *t = &threads[current];
    int done = 0;
    while (done < t->num_copies && t->copies[done].group < t->group - pending)
        complete_copy(&t->copies[done++]);
    t->num_copies -= done;
    if (done) memmove(t->copies, t->copies + done, (size_t)t->num_copies * sizeof *t->copies);
}

/* --- threads, blocks and grids --- */

/* Completes the barriers that only waited for this thread.  The shared memory of a block may become
 * another's when it ends, while a copy is still in flight. */
static void thread_returned(void)
{
    const struct emulated_thread *t = &threads[current];
    if (t->num_copies)
        die(t->copies->file, t->copies->line, "a thread returns without waiting for this cp.async",
            NULL);
    struct warp *w = t->warp;
    block_barrier.live--, w->barrier.live--;
    if (w->barrier.live && w->barrier.arrived == w->barrier.live) resume_warp(w, -1);
    if (block_barrier.live && block_barrier.arrived == block_barrier.live) resume_block(-1);
}

/* Runs one thread after another; never returns. */
__attribute__((noreturn)) static void run_threads(void *self)
{
    for (;;) {
        while (num_started < num_threads) {
            int thread = launch->warp_size == 64 ? num_threads - 1 - num_started : num_started;
            num_started++;
            threads[thread].fiber = self;
            set_current(thread);
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
    memory_check_clock.block_began = memory_check_clock.block_synced = ++memory_check_clock.now;
    if (memory_check) memory_check->block_began(shared, launch->shared_bytes, sizeof shared);
    num_started = num_ready = 0;
    block_barrier.arrived = 0, block_barrier.live = num_threads;
    for (int i = 0; i < num_threads; i++) threads[i].num_copies = threads[i].group = 0;
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
    launch = memory_check_clock.launch = k;
    memory_check_clock.launch_began = ++memory_check_clock.now;
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
        threads[i].warp = &warps[i / k->warp_size], threads[i].lane = i % k->warp_size;
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
    memory_check_clock.launch = NULL;
}
