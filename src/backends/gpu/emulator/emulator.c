// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/emulator.h"

#include "backends/gpu/emulator/thread_block.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t memory_bytes = (size_t)4 << 30;

enum work_kind { KERNEL, COPY, SET, RECORD, WAIT };
struct work {
    struct work *next;
    enum work_kind kind;
    struct gpu_emulator_kernel kernel;
    void *to;
    const void *from;
    size_t bytes;
    int byte;
    gpu_event event;
    uint64_t record; /* of the event */
};
struct gpu_emulator_stream {
    struct work *first, **end;
    struct gpu_emulator_stream *next; /* of all streams */
};
struct gpu_emulator_event {
    gpu_stream stream; /* where it was recorded last */
    uint64_t recorded, passed;
    double passed_s;
};
struct range {
    unsigned char *at;
    size_t bytes;
    bool pinned;
};

/* The device.  Like a real one there is one of it, whoever asks. */
static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static struct range *ranges;
static size_t num_ranges, taken_bytes;
static struct gpu_emulator_stream *streams;
static bool is_plain;
static _Thread_local gpu_error last_error;

static void enter(void)
{
    if (pthread_mutex_lock(&lock)) BUG("a kernel or a copy died before, so the device is lost");
}

static gpu_error done(gpu_error error)
{
    pthread_mutex_unlock(&lock);
    return error;
}

static const struct range *range_of(const void *at)
{
    for (size_t i = 0; i < num_ranges; i++)
        if ((uintptr_t)at - (uintptr_t)ranges[i].at < ranges[i].bytes) return &ranges[i];
    return NULL;
}

static void protect(int how)
{
    for (size_t i = 0; i < num_ranges; i++)
        if (!ranges[i].pinned) BUG_IF(mprotect(ranges[i].at, ranges[i].bytes, how));
}

static void do_work(struct work *w);

/* Until that record of the event; NULL: all. */
static void drain(gpu_stream s, gpu_event until, uint64_t record)
{
    while (s->first && !(until && until->passed >= record)) {
        struct work *w = s->first;
        s->first = w->next;
        if (!s->first) s->end = &s->first;
        do_work(w);
        free((void *)(uintptr_t)w->kernel.closure);
        free(w);
    }
}

static void do_work(struct work *w)
{
    switch (w->kind) {
    case KERNEL: block_run_grid(&w->kernel); break;
    case COPY: memmove(w->to, w->from, w->bytes); break;
    case SET: memset(w->to, w->byte, w->bytes); break;
    case RECORD: w->event->passed = w->record, w->event->passed_s = clock_monotonic_s(); break;
    case WAIT:
        if (w->record) drain(w->event->stream, w->event, w->record);
    }
}

/* Everything that was asked of the stream; NULL: of all. */
static void run(gpu_stream stream)
{
    protect(PROT_READ | PROT_WRITE);
    if (stream)
        drain(stream, NULL, 0);
    else
        for (gpu_stream s = streams; s; s = s->next) drain(s, NULL, 0);
    protect(PROT_NONE);
}

static void add(gpu_stream stream, const struct work *work)
{
    struct work *w = heap(sizeof *w);
    struct gpu_emulator_stream alone = {.end = &alone.first};
    *w = *work;
    gpu_stream s = stream ? stream : &alone;
    *s->end = w;
    s->end = &w->next;
    if (!stream) run(NULL); /* the default stream comes after all others */
    if (!stream || is_plain) run(s);
}

gpu_error gpu_emulator_device_count(int *count)
{
    *count = 1;
    return GPU_EMULATOR_OK;
}

gpu_error gpu_emulator_set_device(int device)
{
    return device ? GPU_EMULATOR_INVALID : GPU_EMULATOR_OK;
}

gpu_error gpu_emulator_memory(size_t *available, size_t *total)
{
    enter();
    *total = memory_bytes, *available = memory_bytes - taken_bytes;
    return done(GPU_EMULATOR_OK);
}

static gpu_error take(void **out, size_t bytes, bool pinned)
{
    enum { PAGE = 1 << 16, NAN_BYTE = 0xFF };
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    enter();
    if (!bytes || whole < bytes || whole > memory_bytes - taken_bytes)
        return done(GPU_EMULATOR_MEMORY);
    void *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return done(GPU_EMULATOR_MEMORY);
    memset(at, NAN_BYTE, whole);
    if (!pinned) BUG_IF(mprotect(at, whole, PROT_NONE));
    ranges = heap_grow(ranges, num_ranges + 1, sizeof *ranges);
    ranges[num_ranges++] = (struct range){at, whole, pinned};
    taken_bytes += pinned ? 0 : whole;
    *out = at;
    return done(GPU_EMULATOR_OK);
}

static gpu_error give(void *at)
{
    if (!at) return GPU_EMULATOR_OK;
    enter();
    struct range *r = (struct range *)(uintptr_t)range_of(at);
    if (!r || r->at != at) return done(GPU_EMULATOR_INVALID);
    run(NULL); /* as a device does: work under way may use it */
    taken_bytes -= r->pinned ? 0 : r->bytes;
    munmap(r->at, r->bytes);
    *r = ranges[--num_ranges];
    if (!num_ranges) free(ranges), ranges = NULL;
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_malloc(void **out, size_t bytes) { return take(out, bytes, false); }
gpu_error gpu_emulator_free(void *at) { return give(at); }
gpu_error gpu_emulator_host_alloc(void **out, size_t bytes) { return take(out, bytes, true); }
gpu_error gpu_emulator_host_free(void *at) { return give(at); }

bool gpu_emulator_is_device(const void *at)
{
    enter();
    const struct range *r = range_of(at);
    bool is = r && !r->pinned;
    done(GPU_EMULATOR_OK);
    return is;
}

gpu_error gpu_emulator_stream_create(gpu_stream *out)
{
    gpu_stream s = *out = heap(sizeof *s);
    enter();
    *s = (struct gpu_emulator_stream){.end = &s->first, .next = streams};
    streams = s;
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_stream_destroy(gpu_stream stream)
{
    enter();
    run(stream);
    gpu_stream *at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    free(stream);
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_synchronize(gpu_stream stream)
{
    enter();
    run(stream);
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_synchronize_all(void) { return gpu_emulator_synchronize(NULL); }

gpu_error gpu_emulator_copy(void *to, const void *from, size_t bytes, gpu_stream stream)
{
    enter();
    add(stream, &(struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
    if (!range_of(to) || !range_of(from)) run(stream); /* memory that the system may move */
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_set(void *at, int byte, size_t bytes, gpu_stream stream)
{
    enter();
    add(stream, &(struct work){.kind = SET, .to = at, .byte = byte, .bytes = bytes});
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_event_create(gpu_event *out)
{
    *out = heap(sizeof **out);
    return GPU_EMULATOR_OK;
}

gpu_error gpu_emulator_event_destroy(gpu_event event)
{
    enter();
    if (event->passed < event->recorded) run(event->stream);
    free(event);
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_event_record(gpu_event event, gpu_stream stream)
{
    enter();
    event->stream = stream;
    add(stream, &(struct work){.kind = RECORD, .event = event, .record = ++event->recorded});
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_event_wait(gpu_stream stream, gpu_event event)
{
    enter();
    add(stream, &(struct work){.kind = WAIT, .event = event, .record = event->recorded});
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_event_synchronize(gpu_event event)
{
    enter();
    if (event->passed < event->recorded) run(event->stream);
    return done(GPU_EMULATOR_OK);
}

gpu_error gpu_emulator_event_elapsed(float *ms, gpu_event from, gpu_event to)
{
    enter();
    bool both =
        from->passed && from->passed == from->recorded && to->passed && to->passed == to->recorded;
    *ms = both ? (float)(1e3 * (to->passed_s - from->passed_s)) : 0;
    return done(both ? GPU_EMULATOR_OK : GPU_EMULATOR_INVALID);
}

gpu_error gpu_emulator_last_error(void)
{
    gpu_error error = last_error;
    last_error = GPU_EMULATOR_OK;
    return error;
}

const char *gpu_emulator_text(gpu_error error)
{
    static const char *const texts[] = {"no error", "invalid value", "out of memory"};
    return texts[error];
}

/* The least of what devices of either kind of wave take. */
static bool fits(const struct gpu_emulator_kernel *k)
{
    enum { MOST_BLOCKS = 65535, MOST_THREADS = 1024, SHARED_32 = 232448, SHARED_64 = 65536 };
    struct gpu_dim g = k->grid, b = k->block;
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    return g.x && g.y && g.z && g.x <= INT32_MAX && g.y <= MOST_BLOCKS && g.z <= MOST_BLOCKS &&
           threads && b.z <= 64 && b.x <= MOST_THREADS && b.y <= MOST_THREADS &&
           threads <= MOST_THREADS && k->shared_bytes <= (k->wave == 64 ? SHARED_64 : SHARED_32);
}

void gpu_emulator_launch(const struct gpu_emulator_kernel *kernel, gpu_stream stream)
{
    if (!fits(kernel)) {
        last_error = GPU_EMULATOR_INVALID;
        return;
    }
    struct work w = {.kind = KERNEL, .kernel = *kernel};
    void *closure = heap(kernel->closure_bytes);
    memcpy(closure, kernel->closure, kernel->closure_bytes);
    w.kernel.closure = closure;
    enter();
    add(stream, &w);
    done(GPU_EMULATOR_OK);
}

void gpu_emulator_plain(bool plain)
{
    enter();
    run(NULL);
    is_plain = plain;
    done(GPU_EMULATOR_OK);
}

void gpu_emulator_check_pointer(const char *kernel, const void *at)
{
    enter();
    bool reached = !at || is_plain || range_of(at);
    done(GPU_EMULATOR_OK);
    char text[256];
    snprintf(text, sizeof text, "kernel %s is given memory that is not the device's", kernel);
    if (!reached) status_bug(__FILE__, __LINE__, text);
}
