// SPDX-License-Identifier: Apache-2.0
#include "tensor/strict_device.h"

#include "base/text.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/update.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- memory -------------------------------------------------------------------------------- */

struct block {
    char *at;
    size_t size;
    pthread_t owner;
    int open; /* how many are at work on it */
    struct block *next;
};
static struct block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum status map(size_t size, int rights, void **out)
{
    *out = mmap(NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*out == MAP_FAILED) FAIL(MEMORY, "the system has no %zu bytes", size);
    return STATUS_OK;
}

static enum status take_own(size_t size, void **out)
{
    TRY(map(size, PROT_NONE, out));
    struct block *b = heap(sizeof *b);
    pthread_mutex_lock(&lock);
    *b = (struct block){.at = *out, .size = size, .owner = pthread_self(), .next = blocks};
    blocks = b;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

static void give_own(void *at, size_t size)
{
    pthread_mutex_lock(&lock);
    struct block **b = &blocks;
    while ((*b)->at != at) b = &(*b)->next;
    struct block *gone = *b;
    *b = gone->next;
    pthread_mutex_unlock(&lock);
    BUG_IF(gone->open || gone->size != size);
    free(gone);
    munmap(at, size);
}

static enum status take_shared(size_t size, void **out)
{
    return map(size, PROT_READ | PROT_WRITE, out);
}

static void give_shared(void *at, size_t size) { munmap(at, size); }

static enum status fill(struct queue *on, size_t *bytes, size_t *used)
{
    (void)on;
    *bytes = 1 << 30, *used = 0;
    pthread_mutex_lock(&lock);
    for (const struct block *b = blocks; b; b = b->next) *used += b->size;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

static bool holds(const struct block *b, const void *x)
{
    return (const char *)x >= b->at && (const char *)x < b->at + b->size;
}

bool strict_owns(const void *x)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct block *b = blocks; b; b = b->next) found = found || holds(b, x);
    pthread_mutex_unlock(&lock);
    return found;
}

static void open_block(struct block *b, int by)
{
    b->open += by;
    if (b->open == (by > 0)) /* the first, or the last */
        BUG_IF(mprotect(b->at, b->size, b->open ? PROT_READ | PROT_WRITE : PROT_NONE));
}

/* What this thread has can be touched from +1 to -1. */
static void open_mine(int by)
{
    pthread_mutex_lock(&lock);
    for (struct block *b = blocks; b; b = b->next)
        if (pthread_equal(b->owner, pthread_self())) open_block(b, by);
    pthread_mutex_unlock(&lock);
}

void strict_reach(const void *x, int by)
{
    pthread_mutex_lock(&lock);
    for (struct block *b = blocks; b; b = b->next)
        if (holds(b, x)) open_block(b, by);
    pthread_mutex_unlock(&lock);
}

/* --- work ---------------------------------------------------------------------------------- */

struct task {
    enum status (*run)(struct queue *on, const struct task *t);
    void *what, *io; /* owned */
    void *to;
    const void *from;
    size_t bytes, scratch; /* where the scratch of the call begins */
    struct task *next;
};

struct strict {
    struct device device; /* first: the queue points here */
    const struct ops *base;
    bool late;
    struct task *first, **end;
};

static struct strict *strict_of(const struct queue *on) { return (struct strict *)on->device; }

static void task_free(struct task *t) { free(t->what), free(t->io), free(t); }

/* All that was asked for so far; after a failure, the rest is dropped. */
static enum status do_all(struct queue *on)
{
    struct strict *s = strict_of(on);
    size_t mark = arena_mark(&on->scratch);
    enum status st = STATUS_OK;
    if (!s->first) return STATUS_OK;
    open_mine(+1);
    while (s->first) {
        struct task *t = s->first;
        s->first = t->next;
        arena_reset(&on->scratch, t->scratch);
        if (!st) st = t->run(on, t);
        task_free(t);
    }
    open_mine(-1);
    s->end = &s->first;
    arena_reset(&on->scratch, mark);
    return st;
}

static enum status ask(struct queue *on, struct task task, bool now)
{
    struct strict *s = strict_of(on);
    struct task *t = heap(sizeof *t);
    *t = task;
    t->scratch = arena_mark(&on->scratch);
    *s->end = t, s->end = &t->next;
    return now || !s->late ? do_all(on) : STATUS_OK;
}

static enum status run_copy(struct queue *on, const struct task *t)
{
    (void)on;
    memmove(t->to, t->from, t->bytes);
    return STATUS_OK;
}

static enum status run_zero(struct queue *on, const struct task *t)
{
    (void)on;
    memset(t->to, 0, t->bytes);
    return STATUS_OK;
}

static enum status copy(struct queue *on, void *to, const void *from, size_t bytes)
{
    bool within = strict_owns(to) && strict_owns(from);
    TRY(ask(on, (struct task){.run = run_copy, .to = to, .from = from, .bytes = bytes}, !within));
    return STATUS_OK;
}

static enum status zero(struct queue *on, void *x, size_t bytes)
{
    TRY(ask(on, (struct task){.run = run_zero, .to = x, .bytes = bytes}, false));
    return STATUS_OK;
}

static void *kept(const void *x, size_t bytes)
{
    void *y = heap(bytes);
    memcpy(y, x, bytes);
    return y;
}

#define OP(name, what_, io_)                                                                       \
    static enum status run_##name(struct queue *on, const struct task *t)                          \
    {                                                                                              \
        return strict_of(on)->base->name(t->what, t->io, on);                                      \
    }                                                                                              \
    static enum status slot_##name(const struct what_ *a, const struct io_ *io, struct queue *on)  \
    {                                                                                              \
        if (on->measuring) return strict_of(on)->base->name(a, io, on);                            \
        struct task t = {.run = run_##name};                                                       \
        t.what = kept(a, sizeof *a), t.io = kept(io, sizeof *io);                                  \
        return ask(on, t, !strcmp(#name, "sum_squares")); /* its sum is read at once */            \
    }
#include "ops/ops.def"
#undef OP

const struct ops strict_ops = {
    .backend = "strict",
#define OP(name, what, io) .name = slot_##name,
#include "ops/ops.def"
#undef OP
};

void strict_open(struct queue *on, const struct ops *base, bool late)
{
    struct strict *s = heap(sizeof *s);
    *s = (struct strict){
        .device = {{take_own, give_own}, {take_shared, give_shared}, copy, zero, do_all, fill},
        .base = base,
        .late = late,
        .end = &s->first};
    on->device = &s->device;
}

void strict_close(struct queue *on)
{
    struct strict *s = strict_of(on);
    for (struct task *t = s->first, *next; t; t = next) {
        next = t->next;
        task_free(t);
    }
    free(s);
    on->device = NULL;
}
