// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/fiber.h"

#include "base/status.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__)
#include <stdlib.h>
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 1 << 18 };
#else
enum { STACK_BYTES = 1 << 17 };
#endif

/* What a switch hands from the one it leaves to the one it reaches.  Not of a thread: a fiber may
 * go on on another. */
static struct fiber *left, *reached;

static void arrive(struct fiber *self)
{
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self->fake, &bottom, &bytes);
    if (!left->bytes) left->bottom = bottom, left->bytes = bytes; /* the host's stack */
#else
    (void)self;
#endif
}

__attribute__((noinline, noreturn)) static void enter(void)
{
    struct fiber *self = reached;
    arrive(self);
    self->run(self->arg);
    BUG("a fiber has returned");
}

#if defined(__x86_64__)
/* The registers that a callee keeps go onto the stack, and the stack changes: System V ABI of
 * AMD64, 3.2.1.  The contexts of libc would ask the kernel for the signals' mask each time. */
__attribute__((naked, noinline)) static void change_stack(__attribute__((unused)) void **save,
                                                          __attribute__((unused)) void *top)
{
    __asm__("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
            "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}

static void prepare(struct fiber *f)
{
    enum { KEPT = 6 };
    void **top = (void **)((uintptr_t)f->bottom + f->bytes);
    *--top = NULL; /* enter() returns nowhere, and is entered with the stack as after a call */
    *--top = (void *)(uintptr_t)enter;
    f->top = top - KEPT; /* zero as fresh pages are */
}

static void change(struct fiber *from, struct fiber *to) { change_stack(&from->top, to->top); }
#else
static void prepare(struct fiber *f)
{
    ucontext_t *c = f->top = calloc(1, sizeof *c);
    BUG_IF(!c || getcontext(c));
    c->uc_stack.ss_sp = (void *)(uintptr_t)f->bottom;
    c->uc_stack.ss_size = f->bytes;
    makecontext(c, enter, 0);
}

static void change(struct fiber *from, struct fiber *to)
{
    ucontext_t here, *kept = from->top;
    if (!kept) from->top = &here; /* the host's, until this returns */
    BUG_IF(swapcontext(from->top, to->top));
    from->top = kept;
}
#endif

void fiber_make(struct fiber *f, void (*run)(void *arg), void *arg)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *stack = mmap(NULL, STACK_BYTES + page, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    BUG_IF(stack == MAP_FAILED || mprotect(stack, page, PROT_NONE));
    *f = (struct fiber){.bottom = stack + page, .bytes = STACK_BYTES, .run = run, .arg = arg};
    prepare(f);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    left = from, reached = to;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
#endif
    change(from, to);
    arrive(from);
}
