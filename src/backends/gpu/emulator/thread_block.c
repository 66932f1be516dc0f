/* A thread that reaches a barrier leaves its fiber waiting, and the next thread starts on another;
 * one that reaches none leaves its fiber to the next.  So a kernel without barriers is plain calls.
 */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/thread_block.h"

#include "backends/gpu/emulator/fiber.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { MOST_THREADS = 1024, MOST_WAVES = MOST_THREADS / 32, MOST_SHARED = 232448 };

/* Where some wait for each other. */
struct meeting {
    const char *what, *file;
    int line, arrived, live; /* live: of those who have not returned */
    int waiting[MOST_THREADS];
};
struct wave {
    struct meeting meeting;
    unsigned phase;
    uint64_t gave[2]; /* lanes, of this phase and the one before */
    struct gpu_emulator_slot slots[2][64];
};
struct thread {
    struct gpu_dim index;
    struct fiber *fiber;
    unsigned seen; /* phase of its last gather */
};

struct gpu_dim *gpu_emulator_thread, gpu_emulator_block, gpu_emulator_block_size,
    gpu_emulator_grid_size;

/* Of the block that runs.  A device's own state is no less global: kernels name it. */
static const struct gpu_emulator_kernel *kernel;
static struct thread threads[MOST_THREADS];
static struct wave waves[MOST_WAVES];
static struct meeting all;
static int count, started, ready[MOST_THREADS], num_ready, first_ready, now;
static unsigned char shared[MOST_SHARED] __attribute__((aligned(128)));
static struct fiber host, fibers[MOST_THREADS], *unused[MOST_THREADS], *running;
static int num_fibers, num_unused;

__attribute__((noreturn)) static void die(const char *file, int line, const char *what,
                                          const struct meeting *other)
{
    char text[512];
    struct gpu_dim b = gpu_emulator_block;
    int end = snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u): %s", kernel->name, b.x,
                       b.y, b.z, what);
    if (other)
        snprintf(text + end, sizeof text - (size_t)end, "; %d of %d wait in a %s at %s:%d",
                 other->arrived, other->live, other->what, other->file, other->line);
    status_bug(file, line, text);
}

static void wake(struct meeting *m, int except)
{
    for (int i = 0; i < m->arrived; i++)
        if (m->waiting[i] != except)
            ready[(first_ready + num_ready++) % MOST_THREADS] = m->waiting[i];
    m->arrived = 0;
}

static void wake_wave(struct wave *w, int except)
{
    wake(&w->meeting, except);
    w->gave[++w->phase & 1] = 0;
}

/* Who goes on: one that waits no more, one that has not begun, or, with all done, the host. */
static struct fiber *choose(void)
{
    if (num_ready) {
        struct fiber *f = threads[ready[first_ready]].fiber;
        first_ready = (first_ready + 1) % MOST_THREADS;
        num_ready--;
        return f;
    }
    if (started < count) {
        BUG_IF(!num_unused);
        return unused[--num_unused];
    }
    for (int i = 0; all.live; i++) /* all wait, and not for the same */
        if (waves[i].meeting.arrived)
            die(all.file, all.line, "not all of the block come to this barrier", &waves[i].meeting);
    return &host;
}

static void hand_over(struct fiber *to)
{
    struct fiber *from = running;
    running = to;
    fiber_switch(from, to);
}

static void meet(struct meeting *m, const char *what, const char *file, int line)
{
    if (!m->arrived) m->what = what, m->file = file, m->line = line;
    if (m->line != line || m->file != file) die(file, line, "threads are at different barriers", m);
    m->waiting[m->arrived++] = now;
}

static void wait_turn(void)
{
    int self = now;
    hand_over(choose());
    now = self;
    gpu_emulator_thread = &threads[self].index;
}

void gpu_emulator_barrier(const char *file, int line)
{
    meet(&all, "barrier of the block", file, line);
    if (all.arrived == all.live)
        wake(&all, now);
    else
        wait_turn();
}

const struct gpu_emulator_slot *gpu_emulator_gather(const void *mine, size_t bytes,
                                                    const char *file, int line)
{
    struct wave *w = &waves[now / kernel->wave];
    int lane = now % kernel->wave;
    unsigned phase = threads[now].seen = w->phase;
    BUG_IF(bytes > GPU_EMULATOR_SLOT);
    meet(&w->meeting, "call of the wave", file, line);
    memcpy(w->slots[phase & 1][lane].bytes, mine, bytes);
    w->gave[phase & 1] |= (uint64_t)1 << lane;
    if (w->meeting.arrived == w->meeting.live)
        wake_wave(w, now);
    else
        wait_turn();
    return w->slots[phase & 1];
}

void gpu_emulator_check_lane(int lane, const char *file, int line)
{
    const struct wave *w = &waves[now / kernel->wave];
    if (lane < 0 || lane >= kernel->wave)
        die(file, line, "a shuffle from a lane that no wave has", NULL);
    if (!(w->gave[threads[now].seen & 1] >> lane & 1))
        die(file, line, "a shuffle from a lane that is not there", NULL);
}

void *gpu_emulator_shared(void) { return shared; }

/* One less to wait for. */
static void leave(void)
{
    struct wave *w = &waves[now / kernel->wave];
    all.live--, w->meeting.live--;
    if (w->meeting.live && w->meeting.arrived == w->meeting.live) wake_wave(w, -1);
    if (all.live && all.arrived == all.live) wake(&all, -1);
}

/* A fiber's whole life. */
__attribute__((noreturn)) static void work(void *self)
{
    for (;;) {
        while (started < count) {
            now = kernel->wave == 64 ? count - 1 - started : started;
            started++;
            threads[now].fiber = self;
            gpu_emulator_thread = &threads[now].index;
            kernel->body(kernel->closure);
            leave();
        }
        unused[num_unused++] = self;
        hand_over(choose());
    }
}

static void start_block(void)
{
    enum { NAN_BYTE = 0xFF };
    memset(shared, NAN_BYTE, kernel->shared_bytes);
    started = num_ready = 0;
    all.arrived = 0, all.live = count;
    for (int i = 0; i * kernel->wave < count; i++) {
        int rest = count - i * kernel->wave;
        waves[i].meeting.arrived = 0;
        waves[i].meeting.live = rest < kernel->wave ? rest : kernel->wave;
        waves[i].gave[0] = waves[i].gave[1] = 0;
    }
}

void block_run_grid(const struct gpu_emulator_kernel *k)
{
    struct gpu_dim g = k->grid, b = k->block;
    kernel = k;
    count = (int)(b.x * b.y * b.z);
    gpu_emulator_block_size = b, gpu_emulator_grid_size = g;
    for (; num_fibers < count; num_fibers++) {
        struct fiber *f = &fibers[num_fibers];
        fiber_make(f, work, f);
        unused[num_unused++] = f;
    }
    for (int i = 0; i < count; i++) {
        unsigned at = (unsigned)i;
        threads[i].index = (struct gpu_dim){at % b.x, at / b.x % b.y, at / b.x / b.y};
    }
    uint64_t blocks = (uint64_t)g.x * g.y * g.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t at = k->wave == 64 ? blocks - 1 - i : i;
        gpu_emulator_block = (struct gpu_dim){(unsigned)(at % g.x), (unsigned)(at / g.x % g.y),
                                              (unsigned)(at / g.x / g.y)};
        start_block();
        running = &host;
        hand_over(choose());
    }
}
