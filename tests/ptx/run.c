/* run.c -- warps, blocks and grids. */
// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- memory --- */

static struct range {
    uint64_t begin, end;
} * ranges;
static int num_ranges, room_ranges, last_range;

void ptx_memory_add(const void *begin, size_t bytes)
{
    GROW(ranges, num_ranges, room_ranges);
    uint64_t at = (uint64_t)(uintptr_t)begin;
    ranges[num_ranges++] = (struct range){at, at + bytes};
}

void ptx_memory_remove(const void *begin)
{
    for (int n = 0; n < num_ranges; n++)
        if (ranges[n].begin == (uint64_t)(uintptr_t)begin) {
            ranges[n] = ranges[--num_ranges];
            last_range = 0;
            return;
        }
}

static bool relaxed;
void ptx_set_relaxed(bool is_relaxed) { relaxed = is_relaxed; }

bool ptx_memory_has(uint64_t address, size_t bytes)
{
    if (relaxed) return true;
    if (last_range < num_ranges && address >= ranges[last_range].begin &&
        address + bytes <= ranges[last_range].end)
        return true;
    for (int n = 0; n < num_ranges; n++)
        if (address >= ranges[n].begin && address + bytes <= ranges[n].end) {
            last_range = n;
            return true;
        }
    return false;
}

/* --- errors --- */

void machine_fail(const struct warp *w, const struct instruction *i, int lane, const char *format,
                  ...)
{
    struct block *b = w->block;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr,
            "ptx: kernel %.*s, block (%u, %u, %u), thread %d: ", (int)b->kernel->name_length,
            b->kernel->name, b->index.x, b->index.y, b->index.z, w->index * LANES + lane);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (i) fprintf(stderr, ": %.*s", (int)strcspn(i->text, ";\n"), i->text);
    fputc('\n', stderr);
    longjmp(b->failure, 1);
}

/* --- warps --- */

static void find_nearest(struct warp *w)
{
    w->nearest = INT_MAX;
    for (int n = 0; n < w->num_apart; n++)
        if (!w->apart[n].waits && w->apart[n].pc < w->nearest) w->nearest = w->apart[n].pc;
}

static void part(struct warp *w, int pc, uint32_t mask, bool waits)
{
    if (!mask) return;
    w->apart[w->num_apart].pc = pc;
    w->apart[w->num_apart].mask = mask;
    w->apart[w->num_apart++].waits = waits;
    if (!waits && pc < w->nearest) w->nearest = pc;
}

/* Takes the lanes apart that are at the same instruction; some may wait there. */
static uint32_t take_groups(struct warp *w)
{
    uint32_t mask = 0;
    int kept = 0;
    for (int n = 0; n < w->num_apart; n++) {
        if (w->apart[n].pc == w->pc)
            mask |= w->apart[n].mask;
        else
            w->apart[kept++] = w->apart[n];
    }
    w->num_apart = kept;
    find_nearest(w);
    return mask;
}

/* Continues with the lanes of the lowest address; false if none are left that do not wait. */
static bool regroup(struct warp *w)
{
    w->mask = 0;
    if (w->nearest == INT_MAX) return false;
    w->pc = w->nearest;
    w->mask = take_groups(w);
    return true;
}

/* The lanes that must reach this instruction together. */
static uint32_t members(struct warp *w, const struct instruction *i)
{
    if (i->control == BARRIER) return w->alive;
    if (i->control == CONVERGED) return UINT32_MAX;
    const uint32_t *m = (const uint32_t *)(void *)(w->registers + i->in[i->num_in - 1].slot);
    return m[__builtin_ctz(w->mask)];
}

/* Up to the next barrier or to the end. */
static void run_warp(struct warp *w)
{
    struct instruction *code = w->block->kernel->code;
    int count = w->block->kernel->num_instructions;
    w->is_at_barrier = false;
    for (;;) {
        if (!w->mask || w->pc >= w->nearest) {
            part(w, w->pc, w->mask, false);
            if (!regroup(w)) {
                if (!w->alive) return;
                machine_fail(w, &code[w->apart[0].pc], __builtin_ctz(w->apart[0].mask),
                             "waits for lanes of its warp that never come");
            }
        }
        if (w->pc >= count) machine_fail(w, NULL, 0, "runs past its last instruction");
        struct instruction *i = &code[w->pc];
        i->was_executed = true;
        uint32_t mask = w->mask;
        if (i->guard >= 0) {
            uint32_t p = *(const uint32_t *)(void *)(w->registers + i->guard);
            mask &= i->is_guard_negated ? ~p : p;
        }
        switch (i->control) {
        case PLAIN:
            if (mask) i->execute(w, i, mask);
            w->pc++;
            break;
        case BRANCH:
            if (mask == w->mask) {
                w->pc = i->target;
            } else {
                w->mask &= ~mask;
                w->pc++;
                part(w, i->target, mask, false);
            }
            break;
        case RETURN:
            w->alive &= ~mask;
            w->mask &= ~mask;
            w->pc++;
            break;
        case BARRIER:
        case CONVERGED:
        case CONVERGED_MEMBERS:
            if (mask != w->mask) machine_fail(w, i, 0, "a predicate on what needs the whole warp");
            mask = w->mask |= take_groups(w);
            if (mask & ~members(w, i)) machine_fail(w, i, 0, "a lane is not a member");
            if (members(w, i) & ~mask) { /* CONVERGED: never, once a lane has ended */
                part(w, w->pc, mask, true);
                w->mask = 0;
                break;
            }
            w->pc++;
            if (i->control == BARRIER) {
                w->is_at_barrier = true;
                return;
            }
            i->execute(w, i, mask);
            break;
        }
    }
}

/* --- blocks --- */

static void start_warp(struct warp *w, struct block *b, int index, int threads)
{
    const struct ptx_kernel *k = b->kernel;
    w->block = b, w->index = index;
    int lanes = threads - index * LANES;
    w->alive = lanes >= LANES ? UINT32_MAX : (1u << lanes) - 1;
    w->pc = 0, w->mask = w->alive, w->num_apart = 0, w->nearest = INT_MAX;
    w->is_at_barrier = false;
    w->num_copies = 0;
    memset(w->groups, 0, sizeof w->groups);
    memset(w->registers, PTX_LEFTOVER, (size_t)k->register_bytes);
    if (k->local_bytes) memset(w->local, PTX_LEFTOVER, k->local_bytes * LANES);
    uint32_t *special = (uint32_t *)(void *)(w->registers);
    for (int l = 0; l < LANES; l++) {
        unsigned t = (unsigned)(index * LANES + l);
        unsigned of[NUM_SPECIAL] = {t % b->size.x,
                                    t / b->size.x % b->size.y,
                                    t / b->size.x / b->size.y,
                                    b->size.x,
                                    b->size.y,
                                    b->size.z,
                                    b->index.x,
                                    b->index.y,
                                    b->index.z,
                                    b->grid.x,
                                    b->grid.y,
                                    b->grid.z};
        for (int n = 0; n < NUM_SPECIAL; n++) special[n * LANES + l] = of[n];
    }
    for (int n = 0; n < k->num_constants; n++) {
        const struct constant *c = &k->constants[n];
        if (!c->bytes) memcpy(w->registers + c->slot, &c->value, 4);
        for (int l = 0; l < LANES; l++)
            memcpy(w->registers + c->slot + l * c->bytes, &c->value, c->bytes);
    }
}

/* The first warp that runs differs from block to block. */
static void run_block(struct block *b, struct warp *warps, int num_warps)
{
    int threads = (int)(b->size.x * b->size.y * b->size.z);
    memset(b->shared, PTX_LEFTOVER, b->shared_bytes);
    for (int n = 0; n < num_warps; n++) start_warp(&warps[n], b, n, threads);
    for (bool running = true; running;) {
        running = false;
        for (int n = 0; n < num_warps; n++) {
            struct warp *w = &warps[(n + (int)b->index.x) % num_warps];
            if (w->alive) run_warp(w);
            running |= w->is_at_barrier && w->alive;
        }
    }
}

int ptx_executed(const struct ptx_kernel *k)
{
    int count = 0;
    for (int n = 0; n < k->num_instructions; n++) count += k->code[n].was_executed;
    return count;
}

bool ptx_run(struct ptx_kernel *k, struct ptx_dim grid, struct ptx_dim size, void *const *arguments,
             size_t dynamic_shared)
{
    int threads = (int)(size.x * size.y * size.z), num_warps = (threads + LANES - 1) / LANES;
    struct block b = {.kernel = k, .grid = grid, .size = size};
    k->launches++;
    b.shared_bytes = k->static_shared + dynamic_shared;
    b.shared = aligned_alloc(256, (b.shared_bytes + 511) / 256 * 256);
    b.parameters = aligned_alloc(256, (k->parameter_bytes + 511) / 256 * 256);
    struct warp *warps = calloc((size_t)num_warps, sizeof *warps);
    if (!b.shared || !b.parameters || !warps) abort();
    for (int n = 0; n < num_warps; n++) {
        warps[n].registers = aligned_alloc(256, ((size_t)k->register_bytes + 511) / 256 * 256);
        warps[n].local = malloc(k->local_bytes * LANES + 1);
        if (!warps[n].registers || !warps[n].local) abort();
    }
    for (int n = 0; n < k->num_parameters; n++)
        memcpy(b.parameters + k->parameters[n].offset, arguments[n], k->parameters[n].bytes);
    bool passed = !setjmp(b.failure);
    if (passed) {
        for (b.index.z = 0; b.index.z < grid.z; b.index.z++)
            for (b.index.y = 0; b.index.y < grid.y; b.index.y++)
                for (b.index.x = 0; b.index.x < grid.x; b.index.x++)
                    run_block(&b, warps, num_warps);
    }
    for (int n = 0; n < num_warps; n++) {
        free(warps[n].registers);
        free(warps[n].local);
        free(warps[n].copies);
    }
    free(warps);
    free(b.shared);
    free(b.parameters);
    return passed;
}
