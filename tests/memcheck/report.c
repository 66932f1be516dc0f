// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/memory_check.h"
#include "backends/gpu/emulator/thread_block.h"
#include "base/heap.h"
#include "memcheck/memcheck.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SITES = 1 << 16, LINE_BYTES = 200 };

static const void *sites[MAX_SITES];
/* When the launch's blocks began. */
static struct {
    uint32_t time;
    struct grid_dim index;
} * blocks;
static size_t num_blocks, room;

uint16_t report_site(const void *caller)
{
    uintptr_t slot = (uintptr_t)caller * 0x9E3779B97F4A7C15u >> 48;
    while (sites[slot] && sites[slot] != caller) slot = (slot + 1) % MAX_SITES;
    sites[slot] = caller;
    return (uint16_t)slot;
}

void report_block_began(void)
{
    if (memory_check_clock.launch_began + 1 == memory_check_clock.now) num_blocks = 0;
    if (num_blocks == room) {
        room = room ? 2 * room : 64;
        blocks = heap_grow(blocks, room, sizeof *blocks);
    }
    blocks[num_blocks].time = memory_check_clock.now;
    blocks[num_blocks++].index = thread_block_idx;
}

/* "rmsnorm.cu:120", with the lines into which that was inlined behind it. */
static void append_line(char *to, size_t bytes, const void *caller)
{
    Dl_info info;
    char command[128], line[LINE_BYTES];
    size_t used = strlen(to);
    if (!dladdr(caller, &info)) return;
    snprintf(command, sizeof command, "addr2line -s -i -e /proc/%d/exe %#lx", (int)getpid(),
             (unsigned long)((uintptr_t)caller - 1 - (uintptr_t)info.dli_fbase));
    FILE *lines = popen(command, "r");
    for (int i = 0; lines && fgets(line, sizeof line, lines); i++) {
        line[strcspn(line, " \n")] = '\0';
        used += (size_t)snprintf(to + used, bytes - used, "%s%s", i ? " < " : " at ", line);
        if (used >= bytes) break;
    }
    if (lines) pclose(lines);
}

/* "memcheck: kernel k with warps of 32, block (0, 0, 0): thread 3 reads 4 bytes" */
static void begin(const struct place *p, char *text, size_t bytes)
{
    const struct memory_check_clock *now = &memory_check_clock;
    struct grid_dim b = thread_block_idx;
    snprintf(text, bytes,
             "memcheck: kernel %s with warps of %d, block (%u, %u, %u): thread %d %s %zu bytes%s",
             now->launch->name, now->launch->warp_size, b.x, b.y, b.z, now->thread,
             p->is_write ? "writes" : "reads", p->bytes, p->is_shared ? " of shared memory" : "");
}

__attribute__((noreturn)) static void end(const char *text)
{
    fprintf(stderr, "%s\n", text);
    fflush(stderr);
    abort();
}

void report_access(const struct place *p, const char *what)
{
    char text[2048];
    begin(p, text, sizeof text);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, " %s,", what);
    append_line(text, sizeof text, p->caller);
    end(text);
}

void report_race(const struct place *p, struct access earlier, const char *did)
{
    char text[2048];
    size_t i = num_blocks;
    begin(p, text, sizeof text);
    append_line(text, sizeof text, p->caller);
    while (i > 1 && blocks[i - 1].time > earlier.time) i--;
    struct grid_dim b = blocks[i - 1].index;
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, ", which thread %d of %sblock (%u, %u, %u) %s",
             earlier.thread, i == num_blocks ? "this " : "", b.x, b.y, b.z, did);
    append_line(text, sizeof text, sites[earlier.site]);
    used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s",
             i == num_blocks ? ", without a barrier in between" : " in the same launch");
    end(text);
}
