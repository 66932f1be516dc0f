// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/arena.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *allocate_some(struct arena *a)
{
    arena_alloc(a, 3, 7);
    size_t mark = arena_mark(a);
    arena_alloc(a, 1000, 8);
    arena_reset(a, mark);
    return arena_alloc(a, 5, 4);
}

TEST(sizing_arena_adds_up_what_the_same_calls_allocate_later)
{
    struct arena a = {0};
    CHECK(allocate_some(&a) == NULL);
    CHECK(a.used == 128 && a.peak == 64 + 8000 && !a.overflow);
    size_t bytes = a.peak;
    CHECK_STATUS(OK, arena_init(&a, bytes, NULL));
    unsigned char *last = allocate_some(&a);
    CHECK(last == a.base + 64 && a.peak == bytes);
    arena_release(&a);
    CHECK(!a.base && !a.size && !a.used);
}

TEST(arena_allocations_are_aligned_zeroed_and_disjoint)
{
    struct arena a;
    CHECK_STATUS(OK, arena_init(&a, 1 << 16, NULL));
    unsigned char *before = NULL;
    for (size_t bytes = 1; bytes < 200; bytes += 13) {
        unsigned char *p = arena_alloc(&a, bytes, 1);
        CHECK((uintptr_t)p % ARENA_ALIGN == 0 && p > before);
        for (size_t i = 0; i < bytes; i++) CHECK(p[i] == 0);
        memset(p, 0xFF, bytes);
        before = p + bytes - 1;
    }
    arena_release(&a);
}

TEST(sizing_arena_detects_size_overflow)
{
    struct arena a = {0};
    arena_alloc(&a, SIZE_MAX / 2, 3);
    CHECK(a.overflow && a.used == 0);
    a = (struct arena){0};
    arena_alloc(&a, SIZE_MAX - 70, 1);
    arena_alloc(&a, 100, 1);
    CHECK(a.overflow);
}

TEST(arena_failure_names_the_size_required)
{
    struct arena a;
    CHECK_STATUS(MEMORY, arena_init(&a, (size_t)1 << 62, NULL));
    CHECK_MESSAGE("GiB");
    CHECK(!a.base);
}

TEST(arena_allocation_past_the_end_is_a_bug)
{
    pid_t child = fork();
    if (!child) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        struct arena a;
        if (!freopen("/dev/null", "w", stderr) || arena_init(&a, 128, NULL)) _exit(1);
        arena_alloc(&a, 129, 1);
        _exit(0);
    }
    int code = 0;
    CHECK(child > 0 && waitpid(child, &code, 0) == child);
    CHECK(WIFSIGNALED(code) && WTERMSIG(code) == SIGABRT);
}
