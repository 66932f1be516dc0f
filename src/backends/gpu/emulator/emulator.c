// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/emulator.h"

#include "backends/gpu/emulator/memory_check.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t memory_bytes = (size_t)4 << 30;

enum op_kind { OP_KERNEL, OP_COPY, OP_SET, OP_GRAPH, OP_RECORD, OP_WAIT };
struct stream_op {
    struct stream_op *next;
    enum op_kind kind;
    struct kernel_launch kernel;
    void *to;
    const void *from;
    size_t bytes;
    int byte;
    gpu_graph graph;
    gpu_event event;
    uint64_t record; /* which recording of the event */
};
struct emulator_stream {
    struct stream_op *first, **end;
    struct emulator_stream *next; /* in the list of all streams */
    bool runs_kernels;
};
struct emulator_graph {
    struct stream_op *first, **end;
    size_t nodes;
    int references; /* graph and exec are the same */
};
struct emulator_event {
    gpu_stream stream;                  /* of the latest recording */
    uint64_t num_recorded, num_reached; /* recordings queued, and executed */
    double reached_s;                   /* when the latest was executed */
};
struct allocation {
    unsigned char *base;
    size_t bytes;
    bool pinned;
};

/* The device: one for the whole process, like a real one. */
static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static struct allocation *allocations;
static size_t num_allocations, used_bytes;
static struct emulator_stream *streams;
static struct capture {
    gpu_stream stream; /* NULL: none captures */
    pthread_t thread;
    gpu_graph graph;
    bool is_invalid;
} capture;
static bool is_relaxed, is_dry, has_eager_copies;
static void (*observer)(enum emulator_work work, const char *kernel, size_t bytes);
static _Thread_local gpu_error last_error;

static void lock_device(void)
{
    if (pthread_mutex_lock(&lock)) BUG("the device is lost: an earlier kernel or copy died");
}

/* Returns `error`, which becomes the last one. */
static gpu_error end_call(gpu_error error)
{
    if (error != EMULATOR_SUCCESS) last_error = error;
    return error;
}

static gpu_error unlock_device(gpu_error error)
{
    pthread_mutex_unlock(&lock);
    return end_call(error);
}

static void report(enum emulator_work work, const char *kernel, size_t bytes)
{
    if (observer) observer(work, kernel, bytes);
}

static const struct allocation *find_allocation(const void *pointer)
{
    for (size_t i = 0; i < num_allocations; i++)
        if ((uintptr_t)pointer - (uintptr_t)allocations[i].base < allocations[i].bytes)
            return &allocations[i];
    return NULL;
}

static void protect_device_memory(int protection)
{
    if (is_dry) return;
    for (size_t i = 0; i < num_allocations; i++)
        if (!allocations[i].pinned)
            BUG_IF(mprotect(allocations[i].base, allocations[i].bytes, protection));
}

static void execute(const struct stream_op *op);

static void free_op(struct stream_op *op)
{
    free((void *)(uintptr_t)op->kernel.closure);
    free(op);
}

/* Executes the stream's work, up to that recording of `until` unless it is NULL.  Of an event that
 * is reached, or was never recorded, the stream may not exist. */
static void drain(gpu_stream s, gpu_event until, uint64_t record)
{
    while (!(until && until->num_reached >= record) && s->first) {
        struct stream_op *op = s->first;
        s->first = op->next;
        if (!s->first) s->end = &s->first;
        execute(op);
        free_op(op);
    }
}

static void execute(const struct stream_op *op)
{
    if (is_dry && op->kind != OP_RECORD && op->kind != OP_WAIT) return;
    switch (op->kind) {
    case OP_KERNEL: thread_block_run_grid(&op->kernel); break;
    case OP_COPY:
        if (memory_check) memory_check->written(op->to, op->bytes);
        memmove(op->to, op->from, op->bytes);
        break;
    case OP_SET:
        if (memory_check) memory_check->written(op->to, op->bytes);
        memset(op->to, op->byte, op->bytes);
        break;
    case OP_GRAPH:
        for (const struct stream_op *node = op->graph->first; node; node = node->next)
            execute(node);
        break;
    case OP_RECORD:
        op->event->num_reached = op->record, op->event->reached_s = clock_monotonic_s();
        break;
    case OP_WAIT:
        if (op->record) drain(op->event->stream, op->event, op->record);
    }
}

static bool has_work(gpu_stream stream)
{
    if (stream) return stream->first;
    for (gpu_stream s = streams; s; s = s->next)
        if (s->first) return true;
    return false;
}

/* Executes all queued work of the stream, or of every stream for NULL. */
static void run_stream(gpu_stream stream)
{
    if (!has_work(stream)) return;
    protect_device_memory(PROT_READ | PROT_WRITE);
    if (stream)
        drain(stream, NULL, 0);
    else
        for (gpu_stream s = streams; s; s = s->next) drain(s, NULL, 0);
    protect_device_memory(PROT_NONE);
}

/* Whether a capture forbids an operation on this stream; then the capture fails.  NULL: an
 * operation on all streams, which is forbidden to the capturing thread. */
static bool breaks_capture(gpu_stream stream)
{
    bool breaks = capture.stream && (stream ? stream == capture.stream
                                            : pthread_equal(capture.thread, pthread_self()));
    capture.is_invalid |= breaks;
    return breaks;
}

/* Reports work that is submitted now; what is captured is not. */
static void report_work(gpu_stream stream, enum emulator_work work, const char *kernel,
                        size_t bytes)
{
    lock_device();
    bool is_captured = stream && stream == capture.stream;
    unlock_device(EMULATOR_SUCCESS);
    if (!is_captured) report(work, kernel, bytes);
}

static void enqueue(gpu_stream stream, const struct stream_op *queued)
{
    struct stream_op *op = heap(sizeof *op);
    struct emulator_stream default_stream = {.end = &default_stream.first};
    *op = *queued;
    if (stream && stream == capture.stream) {
        *capture.graph->end = op;
        capture.graph->end = &op->next, capture.graph->nodes++;
        return;
    }
    gpu_stream s = stream ? stream : &default_stream;
    *s->end = op;
    s->end = &op->next;
    s->runs_kernels = s->runs_kernels || op->kind == OP_KERNEL;
    if (!stream) run_stream(NULL); /* the default stream waits for all others */
    if (!stream || is_relaxed || (has_eager_copies && !s->runs_kernels)) run_stream(s);
}

gpu_error emulator_device_count(int *count)
{
    const char *text = getenv("LLAMERO_EMULATED_GPUS");
    long wanted = text ? strtol(text, NULL, 10) : 1;
    *count = wanted > 0 && wanted <= 64 ? (int)wanted : 1;
    return EMULATOR_SUCCESS;
}

gpu_error emulator_set_device(int device)
{
    int count;
    emulator_device_count(&count);
    return end_call(device < 0 || device >= count ? EMULATOR_INVALID_VALUE : EMULATOR_SUCCESS);
}

void emulator_device_name(char *to, size_t bytes, int device)
{
    const char *name = getenv("LLAMERO_EMULATED_NAME");
    if (name)
        snprintf(to, bytes, "%s", name);
    else
        snprintf(to, bytes, "emulated GPU %d", device);
}

int emulator_compute_capability(void)
{
    const char *text = getenv("LLAMERO_EMULATED_CAPABILITY");
    return text ? (int)strtol(text, NULL, 10) : 0;
}

gpu_error emulator_mem_info(size_t *available, size_t *total)
{
    lock_device();
    *total = memory_bytes, *available = memory_bytes - used_bytes;
    return unlock_device(EMULATOR_SUCCESS);
}

static gpu_error allocate(void **out, size_t bytes, bool pinned)
{
    enum { PAGE = 1 << 16, NAN_BYTE = 0xFF };
    size_t rounded = (bytes + PAGE - 1) / PAGE * PAGE;
    lock_device();
    bool has_pages = pinned || !is_dry;
    if (breaks_capture(NULL)) return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    if (!bytes || rounded < bytes || (has_pages && rounded > memory_bytes - used_bytes))
        return unlock_device(EMULATOR_OUT_OF_MEMORY);
    void *at = mmap(NULL, rounded, has_pages ? PROT_READ | PROT_WRITE : PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return unlock_device(EMULATOR_OUT_OF_MEMORY);
    madvise(at, rounded, MADV_HUGEPAGE); /* fewer pages for mprotect to visit */
    if (has_pages) memset(at, NAN_BYTE, rounded);
    if (has_pages && !pinned) BUG_IF(mprotect(at, rounded, PROT_NONE));
    allocations = heap_grow(allocations, num_allocations + 1, sizeof *allocations);
    allocations[num_allocations++] = (struct allocation){at, rounded, pinned};
    used_bytes += pinned || is_dry ? 0 : rounded;
    if (memory_check && !is_dry) memory_check->allocated(at, bytes, pinned);
    *out = at;
    return unlock_device(EMULATOR_SUCCESS);
}

static gpu_error release(void *memory)
{
    if (!memory) return EMULATOR_SUCCESS;
    lock_device();
    if (breaks_capture(NULL)) return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    struct allocation *r = (struct allocation *)(uintptr_t)find_allocation(memory);
    if (!r || r->base != memory) return unlock_device(EMULATOR_INVALID_VALUE);
    run_stream(NULL); /* cudaFree synchronizes: pending work may use it */
    used_bytes -= r->pinned || is_dry ? 0 : r->bytes;
    if (memory_check) memory_check->released(r->base, r->bytes);
    munmap(r->base, r->bytes);
    *r = allocations[--num_allocations];
    if (!num_allocations) free(allocations), allocations = NULL;
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_malloc(void **out, size_t bytes) { return allocate(out, bytes, false); }
gpu_error emulator_free(void *memory) { return release(memory); }
gpu_error emulator_host_alloc(void **out, size_t bytes) { return allocate(out, bytes, true); }
gpu_error emulator_host_free(void *memory) { return release(memory); }

bool emulator_is_device_memory(const void *pointer)
{
    lock_device();
    const struct allocation *r = find_allocation(pointer);
    bool is_device = r && !r->pinned;
    unlock_device(EMULATOR_SUCCESS);
    return is_device;
}

gpu_error emulator_stream_create(gpu_stream *out)
{
    gpu_stream s = *out = heap(sizeof *s);
    lock_device();
    *s = (struct emulator_stream){.end = &s->first, .next = streams};
    streams = s;
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_stream_destroy(gpu_stream stream)
{
    lock_device();
    BUG_IF(stream == capture.stream);
    run_stream(stream);
    gpu_stream *at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    free(stream);
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_stream_synchronize(gpu_stream stream)
{
    report(EMULATOR_WAIT, NULL, 0);
    lock_device();
    if (breaks_capture(stream)) return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    run_stream(stream);
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_device_synchronize(void) { return emulator_stream_synchronize(NULL); }

gpu_error emulator_memcpy(void *to, const void *from, size_t bytes, gpu_stream stream)
{
    report_work(stream, EMULATOR_COPY, NULL, bytes);
    lock_device();
    /* Pageable host memory: the copy is synchronous. */
    bool is_synchronous = !find_allocation(to) || !find_allocation(from);
    if ((is_synchronous || !stream) && breaks_capture(stream))
        return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    enqueue(stream, &(struct stream_op){.kind = OP_COPY, .to = to, .from = from, .bytes = bytes});
    if (is_synchronous) run_stream(stream);
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_memset(void *to, int byte, size_t bytes, gpu_stream stream)
{
    report_work(stream, EMULATOR_MEMSET, NULL, bytes);
    lock_device();
    if (!stream && breaks_capture(stream)) return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    enqueue(stream, &(struct stream_op){.kind = OP_SET, .to = to, .byte = byte, .bytes = bytes});
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_event_create(gpu_event *out)
{
    *out = heap(sizeof **out);
    return EMULATOR_SUCCESS;
}

gpu_error emulator_event_destroy(gpu_event event)
{
    lock_device();
    if (event->num_reached < event->num_recorded) run_stream(event->stream);
    free(event);
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_event_record(gpu_event event, gpu_stream stream)
{
    lock_device();
    if (breaks_capture(stream)) return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    event->stream = stream;
    enqueue(stream, &(struct stream_op){
                        .kind = OP_RECORD, .event = event, .record = ++event->num_recorded});
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_event_wait(gpu_stream stream, gpu_event event)
{
    lock_device();
    if (breaks_capture(stream)) return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    enqueue(stream,
            &(struct stream_op){.kind = OP_WAIT, .event = event, .record = event->num_recorded});
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_event_synchronize(gpu_event event)
{
    report(EMULATOR_WAIT, NULL, 0);
    lock_device();
    if (event->num_reached < event->num_recorded) {
        protect_device_memory(PROT_READ | PROT_WRITE);
        drain(event->stream, event, event->num_recorded);
        protect_device_memory(PROT_NONE);
    }
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_event_elapsed(float *ms, gpu_event from, gpu_event to)
{
    lock_device();
    bool are_reached = from->num_reached && from->num_reached == from->num_recorded &&
                       to->num_reached && to->num_reached == to->num_recorded;
    *ms = are_reached ? (float)(1e3 * (to->reached_s - from->reached_s)) : 0;
    return unlock_device(are_reached ? EMULATOR_SUCCESS : EMULATOR_INVALID_VALUE);
}

static void free_graph(gpu_graph graph)
{
    for (struct stream_op *op = graph->first, *next; op; op = next) {
        next = op->next;
        free_op(op);
    }
    free(graph);
}

gpu_error emulator_stream_begin_capture(gpu_stream stream)
{
    lock_device();
    if (!stream || capture.stream) return unlock_device(EMULATOR_INVALID_VALUE);
    capture = (struct capture){stream, pthread_self(), heap(sizeof *capture.graph), false};
    *capture.graph = (struct emulator_graph){.end = &capture.graph->first, .references = 1};
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_stream_end_capture(gpu_stream stream, gpu_graph *out)
{
    *out = NULL;
    lock_device();
    if (!stream || capture.stream != stream) return unlock_device(EMULATOR_INVALID_VALUE);
    struct capture ended = capture;
    capture = (struct capture){0};
    if (ended.is_invalid)
        free_graph(ended.graph);
    else
        *out = ended.graph;
    return unlock_device(ended.is_invalid ? EMULATOR_CAPTURE_UNSUPPORTED : EMULATOR_SUCCESS);
}

gpu_error emulator_graph_instantiate(gpu_graph_exec *out, gpu_graph graph)
{
    lock_device();
    graph->references++;
    *out = graph;
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_graph_launch(gpu_graph_exec exec, gpu_stream stream)
{
    report(EMULATOR_GRAPH, NULL, exec->nodes);
    lock_device();
    if (breaks_capture(stream)) return unlock_device(EMULATOR_CAPTURE_UNSUPPORTED);
    enqueue(stream, &(struct stream_op){.kind = OP_GRAPH, .graph = exec});
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_graph_destroy(gpu_graph graph)
{
    lock_device();
    if (--graph->references) return unlock_device(EMULATOR_SUCCESS);
    run_stream(NULL); /* launches may be queued */
    free_graph(graph);
    return unlock_device(EMULATOR_SUCCESS);
}

gpu_error emulator_graph_exec_destroy(gpu_graph_exec exec) { return emulator_graph_destroy(exec); }

gpu_error emulator_last_error(void)
{
    gpu_error error = last_error;
    last_error = EMULATOR_SUCCESS;
    return error;
}

const char *emulator_error_string(gpu_error error)
{
    static const char *const texts[] = {"no error", "invalid value", "out of memory",
                                        "operation not permitted when stream is capturing"};
    return texts[error];
}

/* The smallest limits among devices of this warp size. */
static bool is_within_limits(const struct kernel_launch *k)
{
    enum {
        MAX_BLOCKS = 65535,
        MAX_THREADS = 1024,
        MAX_SHARED_32 = 99 << 10,
        MAX_SHARED_64 = 65536
    };
    struct grid_dim g = k->grid, b = k->block;
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    return g.x && g.y && g.z && g.x <= INT32_MAX && g.y <= MAX_BLOCKS && g.z <= MAX_BLOCKS &&
           threads && b.z <= 64 && b.x <= MAX_THREADS && b.y <= MAX_THREADS &&
           threads <= MAX_THREADS &&
           k->shared_bytes <= (k->warp_size == 64 ? MAX_SHARED_64 : MAX_SHARED_32);
}

void emulator_launch(const struct kernel_launch *launch, gpu_stream stream)
{
    if (!is_within_limits(launch)) {
        last_error = EMULATOR_INVALID_VALUE;
        return;
    }
    report_work(stream, EMULATOR_KERNEL, launch->name, 0);
    struct stream_op op = {.kind = OP_KERNEL, .kernel = *launch};
    void *closure = heap(launch->closure_bytes);
    memcpy(closure, launch->closure, launch->closure_bytes);
    op.kernel.closure = closure;
    lock_device();
    if (!stream && breaks_capture(stream)) last_error = EMULATOR_CAPTURE_UNSUPPORTED;
    enqueue(stream, &op);
    unlock_device(EMULATOR_SUCCESS);
}

void emulator_set_relaxed(bool relaxed)
{
    lock_device();
    run_stream(NULL);
    is_relaxed = relaxed;
    unlock_device(EMULATOR_SUCCESS);
}

void emulator_set_eager_copies(bool eager)
{
    lock_device();
    has_eager_copies = eager;
    unlock_device(EMULATOR_SUCCESS);
}

void emulator_set_dry(bool dry)
{
    lock_device();
    BUG_IF(num_allocations);
    is_dry = dry;
    unlock_device(EMULATOR_SUCCESS);
}

void emulator_observe(void (*on_work)(enum emulator_work work, const char *kernel, size_t bytes))
{
    lock_device();
    observer = on_work;
    unlock_device(EMULATOR_SUCCESS);
}

void emulator_check_pointer(const char *kernel, const void *pointer)
{
    lock_device();
    bool is_accessible = !pointer || is_relaxed || find_allocation(pointer);
    unlock_device(EMULATOR_SUCCESS);
    char text[256];
    snprintf(text, sizeof text, "kernel %s: an argument points to unpinned host memory", kernel);
    if (!is_accessible) status_bug(__FILE__, __LINE__, text);
}
