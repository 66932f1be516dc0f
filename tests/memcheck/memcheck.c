/* g++ -fsanitize=thread compiles the kernels of this program, without its run-time library: it adds
 * a call of __tsan_readN or __tsan_writeN to each access, and those are defined here. */
// SPDX-License-Identifier: Apache-2.0
#include "memcheck/memcheck.h"

#include "backends/gpu/emulator/fiber.h"
#include "backends/gpu/emulator/memory_check.h"
#include "backends/gpu/emulator/thread_block.h"
#include "ops/rig.h"

#include <pthread.h>
#include <string.h>

static const struct memory_check_clock *const now = &memory_check_clock;

/* By the linker: the program's image, and all variables that are __shared__. */
extern const char __executable_start[], _end[];
extern const char __start_emulated_shared[], __stop_emulated_shared[];

static struct {
    const void *base;
    size_t bytes, capacity;
} dynamic_shared;
static const void *host_stack;
static size_t host_stack_bytes;
static bool is_relaxed; /* kernels may access all memory of the host, too */

static bool is_within(const void *at, const void *from, size_t bytes)
{
    return (uintptr_t)at - (uintptr_t)from < bytes;
}

static bool is_between(const void *at, const char *begin, const char *end)
{
    return is_within(at, begin, (size_t)(end - begin));
}

static bool is_shared(const void *at)
{
    return is_within(at, dynamic_shared.base, dynamic_shared.capacity) ||
           is_between(at, __start_emulated_shared, __stop_emulated_shared);
}

/* The arguments of the launch, constants, and the emulator's variables. */
static bool is_readable(const void *at)
{
    return is_within(at, now->launch->closure, now->launch->closure_bytes) ||
           (is_between(at, __executable_start, _end) && !is_shared(at));
}

/* --- races --- */

/* Without a division. */
static int warp_of(int thread) { return thread >> (now->launch->warp_size == 64 ? 6 : 5); }

/* Whether an earlier access is ordered before one of the running thread. */
static bool is_ordered(struct access a, bool shared)
{
    if (a.time < now->block_began) return shared || a.time < now->launch_began;
    if (a.thread == now->thread || a.time < now->block_synced) return true;
    int warp = warp_of(now->thread);
    return warp_of(a.thread) == warp && a.time < now->warp_synced[warp];
}

/* 0: by threads of two blocks of the launch, 1: of two warps of a block, 2: of one warp. */
static int closeness(struct access a, struct access b)
{
    if ((a.time < now->block_began) != (b.time < now->block_began)) return 0;
    return 1 + (warp_of(a.thread) == warp_of(b.thread));
}

/* Keeps two of the reads with which a later write may race, of threads as far apart as possible:
 * then a write that races with any of the reads races with one of these. */
static void record_read(struct cell *c, struct access a, bool shared)
{
    for (int i = 0; i < 2; i++)
        if (is_ordered(c->read[i], shared)) {
            c->read[i] = a;
            return;
        }
    if (closeness(a, c->read[0]) < closeness(c->read[1], c->read[0])) c->read[1] = a;
}

static void check_races(struct cell *c, struct access a, const struct place *p)
{
    if (!(a.is_atomic && c->write.is_atomic) && !is_ordered(c->write, p->is_shared))
        report_race(p, c->write, "wrote");
    for (int i = 0; p->is_write && i < 2; i++)
        if (!(a.is_atomic && c->read[i].is_atomic) && !is_ordered(c->read[i], p->is_shared))
            report_race(p, c->read[i], "read");
    if (p->is_write)
        *c = (struct cell){.write = a};
    else
        record_read(c, a, p->is_shared);
}

/* --- accesses --- */

enum { WRITE = 1, ATOMIC = 2, ALIGNED = 4 };

__attribute__((noreturn)) static void report_bounds(const struct place *p)
{
    char text[128];
    if (p->is_shared)
        snprintf(text, sizeof text, "beyond the %zu bytes of the launch", dynamic_shared.bytes);
    else
        snprintf(text, sizeof text, "outside all allocations");
    report_access(p, text);
}

static bool is_host_stack(const void *at)
{
    return is_relaxed && is_within(at, host_stack, host_stack_bytes);
}

static void check_state(const struct place *p, uint8_t state, const struct cell *c)
{
    if (!(state & (is_relaxed ? ALLOCATED | HOST : ALLOCATED))) report_bounds(p);
    if (state & IN_FLIGHT) report_race(p, c->write, "may still write with cp.async");
    bool is_written = p->is_shared ? c->write.time >= now->block_began : state & WRITTEN;
    if (!p->is_write && !is_written) report_access(p, "that nothing has written");
}

/* Whether check_state accepts a whole word, whose bytes have one cell; it may say no if they do. */
static bool is_accessible(const struct place *p, const uint8_t *state, const struct cell *c)
{
    uint32_t ones = 0x01010101, states, need = is_relaxed ? HOST : ALLOCATED;
    memcpy(&states, state, sizeof states);
    if (p->is_shared || (states & ones * ALLOCATED) == ones * ALLOCATED) need = ALLOCATED;
    if (!p->is_write && p->is_shared && c->write.time < now->block_began) return false;
    if (!p->is_write && !p->is_shared) need |= WRITTEN;
    return (states & ones * (need | IN_FLIGHT)) == ones * need;
}

/* Of an access to the bytes from `begin` to `end` of a word. */
static void check_word(const struct place *p, struct access a, struct chunk *chunk, size_t begin,
                       size_t end)
{
    size_t word = begin / WORD;
    struct cell *whole = &chunk->words[word], *bytes = chunk->bytes;
    bool *is_split = &chunk->is_split[word], is_whole = end - begin == WORD;
    if (!is_whole && !*is_split) {
        for (size_t i = 0; i < WORD; i++) bytes[word * WORD + i] = *whole;
        *is_split = true;
    }
    if (*is_split || !is_accessible(p, &chunk->state[begin], whole))
        for (size_t i = begin; i < end; i++)
            check_state(p, chunk->state[i], *is_split ? &bytes[i] : whole);
    if (*is_split)
        for (size_t i = begin; i < end; i++) check_races(&bytes[i], a, p);
    else
        check_races(whole, a, p);
    if (!p->is_write) return;
    for (size_t i = begin; i < end; i++) chunk->state[i] |= WRITTEN;
    if (is_whole && *is_split) *whole = bytes[begin], *is_split = false;
}

static void check_access(const void *at, size_t bytes, unsigned kind, const void *caller)
{
    if (!now->launch || is_within(at, now->fiber->bottom, now->fiber->bytes)) return;
    if (is_host_stack(at) || (!(kind & WRITE) && is_readable(at))) return;
    struct place p = {at, bytes, kind & WRITE, is_shared(at), caller};
    struct access a = {.time = now->now,
                       .site = report_site(caller),
                       .thread = (unsigned)now->thread % 1024,
                       .is_atomic = (kind & ATOMIC) != 0};
    if (kind & ALIGNED && (uintptr_t)at % bytes) report_access(&p, "at a misaligned address");
    for (size_t i = 0, n; i < bytes; i += n) {
        struct chunk *chunk = shadow_chunk(p.at + i);
        size_t offset = ((uintptr_t)at + i) % CHUNK_BYTES;
        if (!chunk) report_bounds(&p);
        n = WORD - offset % WORD < bytes - i ? WORD - offset % WORD : bytes - i;
        check_word(&p, a, chunk, offset, offset + n);
    }
}

/* kernels compile atomics to volatile accesses (--param tsan-distinguish-volatile=1).  What is
 * not known to be aligned goes to the functions for ranges. */
#define ACCESS_FUNCTION(name, size, kind)                                                          \
    void __tsan_##name##size(const void *at);                                                      \
    void __tsan_##name##size(const void *at)                                                       \
    {                                                                                              \
        check_access(at, size, kind, __builtin_return_address(0));                                 \
    }
#define ACCESS_FUNCTIONS(size)                                                                     \
    ACCESS_FUNCTION(read, size, ALIGNED)                                                           \
    ACCESS_FUNCTION(write, size, ALIGNED | WRITE)                                                  \
    ACCESS_FUNCTION(volatile_read, size, ALIGNED | ATOMIC)                                         \
    ACCESS_FUNCTION(volatile_write, size, ALIGNED | ATOMIC | WRITE)
ACCESS_FUNCTIONS(1)
ACCESS_FUNCTIONS(2)
ACCESS_FUNCTIONS(4)
ACCESS_FUNCTIONS(8)
ACCESS_FUNCTIONS(16)
void __tsan_init(void), __tsan_read_range(const void *at, unsigned long bytes);
void __tsan_write_range(const void *at, unsigned long bytes);
void __tsan_init(void) {}
void __tsan_read_range(const void *at, unsigned long bytes)
{
    check_access(at, bytes, 0, __builtin_return_address(0));
}
void __tsan_write_range(const void *at, unsigned long bytes)
{
    check_access(at, bytes, WRITE, __builtin_return_address(0));
}

/* --- what the emulator reports --- */

static void allocated(const void *at, size_t bytes, bool is_pinned)
{
    shadow_set(at, bytes, ALLOCATED | (is_pinned ? WRITTEN : 0));
}

static void released(const void *at, size_t bytes) { shadow_set(at, bytes, 0); }

static void block_began(const void *shared, size_t bytes, size_t capacity)
{
    dynamic_shared.base = shared, dynamic_shared.bytes = bytes, dynamic_shared.capacity = capacity;
    shadow_set(shared, bytes, ALLOCATED);
    shadow_set((const char *)shared + bytes, capacity - bytes, 0);
    report_block_began();
}

static void async_copy(const void *to, const void *from, size_t bytes, enum copy_phase phase,
                       const void *caller)
{
    if (phase == COPY_COMPLETE) shadow_set(to, bytes, ALLOCATED);
    if (from) check_access(from, bytes, ALIGNED, caller);
    check_access(to, bytes, ALIGNED | WRITE, caller);
    if (phase == COPY_ISSUED) shadow_set(to, bytes, ALLOCATED | IN_FLIGHT);
}

__attribute__((constructor)) static void begin_checks(void)
{
    pthread_attr_t attributes;
    void *stack;
    BUG_IF(pthread_getattr_np(pthread_self(), &attributes) ||
           pthread_attr_getstack(&attributes, &stack, &host_stack_bytes));
    pthread_attr_destroy(&attributes);
    host_stack = stack;
    shadow_set(__start_emulated_shared, (size_t)(__stop_emulated_shared - __start_emulated_shared),
               ALLOCATED);
    static const struct memory_check checks = {allocated, released, shadow_set_written, block_began,
                                               async_copy};
    memory_check = &checks;
}

void __real_emulator_set_relaxed(bool relaxed), __wrap_emulator_set_relaxed(bool relaxed);
void __wrap_emulator_set_relaxed(bool relaxed)
{
    __real_emulator_set_relaxed(relaxed);
    is_relaxed = relaxed;
}

/* Tests of operations run on the emulated GPUs only. */
void __wrap_rig_each_backend(void (*test)(void));
void __wrap_rig_each_backend(void (*test)(void)) { rig_each_gpu(test); }
