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

/* The fibers of the latest switch.  Not thread-local, because a fiber may be resumed on another
 * host thread than the one that suspended it. */
static struct fiber *switched_from, *switched_to;

static void finish_switch(struct fiber *self)
{
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &bytes);
    if (!switched_from->bytes) /* the host's stack */
        switched_from->bottom = bottom, switched_from->bytes = bytes;
#else
    (void)self;
#endif
}

__attribute__((noinline, noreturn)) static void start_fiber(void)
{
    struct fiber *self = switched_to;
    finish_switch(self);
    self->run(self->arg);
    BUG("a fiber has returned");
}

#if defined(__x86_64__)
/* Pushes the callee-saved registers and swaps stack pointers (System V ABI for AMD64, 3.2.1).
 * swapcontext would also make a system call for the signal mask at every switch. */
__attribute__((naked, noinline)) static void swap_stacks(__attribute__((unused)) void **save,
                                                         __attribute__((unused)) void *restore)
{
    __asm__("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
            "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}

static void prepare_stack(struct fiber *f)
{
    enum { SAVED_REGISTERS = 6 };
    void **top = (void **)((uintptr_t)f->bottom + f->bytes);
    *--top = NULL; /* start_fiber's return address, so that the stack is aligned as after a call */
    *--top = (void *)(uintptr_t)start_fiber;
    f->stack_pointer = top - SAVED_REGISTERS; /* fresh pages are zero */
}

static void swap_contexts(struct fiber *from, struct fiber *to)
{
    swap_stacks(&from->stack_pointer, to->stack_pointer);
}
#else
static void prepare_stack(struct fiber *f)
{
    ucontext_t *c = f->stack_pointer = calloc(1, sizeof *c);
    BUG_IF(!c || getcontext(c));
    c->uc_stack.ss_sp = (void *)(uintptr_t)f->bottom;
    c->uc_stack.ss_size = f->bytes;
    makecontext(c, start_fiber, 0);
}

static void swap_contexts(struct fiber *from, struct fiber *to)
{
    ucontext_t here, *kept = from->stack_pointer;
    if (!kept) from->stack_pointer = &here; /* the host's, until this returns */
    BUG_IF(swapcontext(from->stack_pointer, to->stack_pointer));
    from->stack_pointer = kept;
}
#endif

void fiber_make(struct fiber *f, void (*run)(void *arg), void *arg)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *stack = mmap(NULL, STACK_BYTES + page, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    BUG_IF(stack == MAP_FAILED || mprotect(stack, page, PROT_NONE)); /* guard page */
    *f = (struct fiber){.bottom = stack + page, .bytes = STACK_BYTES, .run = run, .arg = arg};
    prepare_stack(f);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    switched_from = from, switched_to = to;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
    swap_contexts(from, to);
    finish_switch(from);
}
