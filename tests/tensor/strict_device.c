// SPDX-License-Identifier: Apache-2.0
#include "tensor/strict_device.h"

#include "base/text.h"
#include "ops/accumulate_gradients.h"
#include "ops/adamw_8bit.h"
#include "ops/attention.h"
#include "ops/bias.h"
#include "ops/context.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/fused_quantize.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/update.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct strict_block {
    char *at;
    size_t size;
    pthread_t owner;
    int open; /* users that can access it */
    struct strict_block *next;
};
static struct strict_block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum status map(size_t size, int rights, void **out)
{
    *out = mmap(NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*out == MAP_FAILED) FAIL(MEMORY, "cannot map %zu bytes", size);
    return STATUS_OK;
}

static enum status alloc_own(size_t size, void **out)
{
    TRY(map(size, PROT_NONE, out));
    struct strict_block *b = heap(sizeof *b);
    pthread_mutex_lock(&lock);
    *b = (struct strict_block){.at = *out, .size = size, .owner = pthread_self(), .next = blocks};
    blocks = b;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

static void free_own(void *at, size_t size)
{
    pthread_mutex_lock(&lock);
    struct strict_block **b = &blocks;
    while ((*b)->at != at) b = &(*b)->next;
    struct strict_block *removed = *b;
    *b = removed->next;
    pthread_mutex_unlock(&lock);
    BUG_IF(removed->open || removed->size != size);
    free(removed);
    munmap(at, size);
}

static enum status alloc_shared(size_t size, void **out)
{
    return map(size, PROT_READ | PROT_WRITE, out);
}

static void free_shared(void *at, size_t size) { munmap(at, size); }

static enum status get_memory_info(struct queue *queue, size_t *bytes, size_t *used)
{
    (void)queue;
    *bytes = 1 << 30, *used = 0;
    pthread_mutex_lock(&lock);
    for (const struct strict_block *b = blocks; b; b = b->next) *used += b->size;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

static bool contains(const struct strict_block *b, const void *x)
{
    return (const char *)x >= b->at && (const char *)x < b->at + b->size;
}

bool strict_owns(const void *x)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct strict_block *b = blocks; b; b = b->next) found = found || contains(b, x);
    pthread_mutex_unlock(&lock);
    return found;
}

static void open_block(struct strict_block *b, int by)
{
    b->open += by;
    if (b->open == (by > 0)) /* the first user came, or the last left */
        BUG_IF(mprotect(b->at, b->size, b->open ? PROT_READ | PROT_WRITE : PROT_NONE));
}

/* Makes this thread's memory accessible between +1 and -1. */
static void open_mine(int by)
{
    pthread_mutex_lock(&lock);
    for (struct strict_block *b = blocks; b; b = b->next)
        if (pthread_equal(b->owner, pthread_self())) open_block(b, by);
    pthread_mutex_unlock(&lock);
}

void strict_reach(const void *x, int by)
{
    pthread_mutex_lock(&lock);
    for (struct strict_block *b = blocks; b; b = b->next)
        if (contains(b, x)) open_block(b, by);
    pthread_mutex_unlock(&lock);
}

struct strict_task {
    enum status (*run)(struct queue *queue, const struct strict_task *t);
    void *what, *io; /* owned */
    void *to;
    const void *from;
    size_t bytes, scratch; /* scratch: offset of the call's scratch memory */
    struct strict_task *next;
};

struct strict {
    struct device device; /* first: the queue points here */
    const struct ops *base;
    bool late;
    struct strict_task *first, **end;
};

static struct strict *strict_of(const struct queue *queue)
{
    return (struct strict *)queue->device;
}

static void task_free(struct strict_task *t) { free(t->what), free(t->io), free(t); }

/* Runs all pending tasks; after a failure the rest is dropped. */
static enum status run_pending(struct queue *queue)
{
    struct strict *s = strict_of(queue);
    size_t mark = arena_mark(&queue->scratch);
    enum status st = STATUS_OK;
    if (!s->first) return STATUS_OK;
    open_mine(+1);
    while (s->first) {
        struct strict_task *t = s->first;
        s->first = t->next;
        arena_reset(&queue->scratch, t->scratch);
        if (!st) st = t->run(queue, t);
        task_free(t);
    }
    open_mine(-1);
    s->end = &s->first;
    arena_reset(&queue->scratch, mark);
    return st;
}

static enum status enqueue(struct queue *queue, struct strict_task task, bool now)
{
    struct strict *s = strict_of(queue);
    struct strict_task *t = heap(sizeof *t);
    *t = task;
    t->scratch = arena_mark(&queue->scratch);
    *s->end = t, s->end = &t->next;
    return now || !s->late ? run_pending(queue) : STATUS_OK;
}

static enum status run_copy(struct queue *queue, const struct strict_task *t)
{
    (void)queue;
    memmove(t->to, t->from, t->bytes);
    return STATUS_OK;
}

static enum status run_zero(struct queue *queue, const struct strict_task *t)
{
    (void)queue;
    memset(t->to, 0, t->bytes);
    return STATUS_OK;
}

static enum status copy(struct queue *queue, void *to, const void *from, size_t bytes)
{
    bool within = strict_owns(to) && strict_owns(from);
    TRY(enqueue(queue,
                (struct strict_task){.run = run_copy, .to = to, .from = from, .bytes = bytes},
                !within));
    return STATUS_OK;
}

static enum status zero(struct queue *queue, void *x, size_t bytes)
{
    TRY(enqueue(queue, (struct strict_task){.run = run_zero, .to = x, .bytes = bytes}, false));
    return STATUS_OK;
}

static void *duplicate(const void *x, size_t bytes)
{
    void *y = heap(bytes);
    memcpy(y, x, bytes);
    return y;
}

#define OP(name, what_, io_)                                                                       \
    static enum status run_##name(struct queue *queue, const struct strict_task *t)                \
    {                                                                                              \
        return strict_of(queue)->base->name(t->what, t->io, queue);                                \
    }                                                                                              \
    static enum status slot_##name(const struct what_ *a, const struct io_ *io,                    \
                                   struct queue *queue)                                            \
    {                                                                                              \
        if (queue->sizing) return strict_of(queue)->base->name(a, io, queue);                      \
        struct strict_task t = {.run = run_##name};                                                \
        t.what = duplicate(a, sizeof *a), t.io = duplicate(io, sizeof *io);                        \
        return enqueue(queue, t,                                                                   \
                       !strcmp(#name, "sum_squares")); /* the caller reads its sum at once */      \
    }
#include "ops/ops.def"
#undef OP

const struct ops strict_ops = {
    .backend = "strict",
#define OP(name, what, io) .name = slot_##name,
#include "ops/ops.def"
#undef OP
};

void strict_open(struct queue *queue, const struct ops *base, bool late)
{
    struct strict *s = heap(sizeof *s);
    *s = (struct strict){.device = {{alloc_own, free_own},
                                    {alloc_shared, free_shared},
                                    copy,
                                    zero,
                                    run_pending,
                                    .memory_info = get_memory_info},
                         .base = base,
                         .late = late,
                         .end = &s->first};
    queue->device = &s->device;
}

void strict_close(struct queue *queue)
{
    struct strict *s = strict_of(queue);
    for (struct strict_task *t = s->first, *next; t; t = next) {
        next = t->next;
        task_free(t);
    }
    free(s);
    queue->device = NULL;
}
