/* queue.h -- an in-order queue of a backend's work: a CPU's threads, or a stream of a GPU.
 *
 * A CPU queue runs each call at once.  A backend's own queue begins with this struct.
 * Sizing   A sizing queue computes nothing and touches no buffer, so the caller's pointers may be
 *          NULL: each op only adds up its scratch memory and prepares what it can, such as
 *          compiled kernels and chosen algorithms.  Running a step once over a sizing queue
 *          therefore gives exactly the memory the step needs, and nothing is allocated later.
 * Order    Work runs in order and may still be in flight when a call returns.  Before the host
 *          reads what a kernel wrote, or overwrites what it reads, it calls queue_wait.  A copy
 *          from or to host memory is complete when queue_copy returns. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "tensor/trace.h"

#include <stdbool.h>

struct device;
struct queue_graph; /* recorded work, the backend's own */
struct copy_observer;

struct queue {
    const struct device *device; /* tensor/device.h; NULL: the CPU */
    bool sizing;
    struct arena scratch; /* working memory of one op; `peak` after a sizing pass is its size */
    size_t
        library_bytes; /* after a sizing pass: memory that libraries allocate themselves, about */
    int num_threads; /* of the host: a CPU's compute, a GPU's convert and checksum what it copies */
    bool thread_invariant; /* no bit may depend on num_threads: f32 GEMMs run without oneDNN */
    struct trace *trace;   /* of the current step; NULL: tracing is off */
    struct copy_observer *copy_observer; /* borrowed; of a sizing queue (copy_stream.h), or NULL */
    struct upload {
        const unsigned char *to, *from;
        size_t bytes;
    } upload; /* the last one */
};

/* Allocators for arena_init, of device memory and of shared memory; NULL on the CPU. */
const struct allocator *queue_device_allocator(const struct queue *queue);
const struct allocator *queue_shared_allocator(const struct queue *queue);

/* `queue` NULL: host memory.  No-ops on a sizing queue.  DEVICE: an earlier kernel failed. */
enum status queue_copy(struct queue *queue, void *to, const void *from, size_t bytes);
enum status queue_zero(struct queue *queue, void *x, size_t bytes);
/* Copies host memory to device memory; until the next upload queue_host_copy finds the host's. */
enum status queue_upload(struct queue *queue, void *to, const void *from, size_t bytes);
/* The host memory that device memory x was uploaded from; NULL: it is not in the last upload. */
const void *queue_host_copy(const struct queue *queue, const void *x);
/* Bytes of device memory, and bytes in use by any process.  BUG on the CPU. */
enum status queue_memory_info(struct queue *queue, size_t *bytes, size_t *used);
/* Waits until all work queued so far is done.  DEVICE: a kernel failed. */
enum status queue_wait(struct queue *queue);

/* Call around a piece of work: adds a span to the trace, if there is one, and a range that the
 * device's profiler shows (Nsight Systems: NVTX).  Spans nest.  `name` is borrowed. */
double queue_begin_span(struct queue *queue, const char *name);
void queue_end_span(struct queue *queue, const char *name, double begin_s);

/* Graphs (CUDA graphs, HIP graphs): between begin and end_capture a device records work instead of
 * running it; a launch then runs all of it, with the same addresses and arguments, as one
 * submission.
 * During a capture queue_wait, copies from and to host memory that is not pinned, and allocations
 * fail with DEVICE; end_capture then does, too, and *out is NULL.  Nothing was run. */
bool queue_has_graphs(const struct queue *queue);
enum status queue_begin_capture(struct queue *queue);
enum status queue_end_capture(struct queue *queue, struct queue_graph **out);
enum status queue_launch_graph(struct queue *queue, const struct queue_graph *graph);
/* Waits for its launches.  NULL is fine. */
void queue_free_graph(struct queue *queue, struct queue_graph *graph);
