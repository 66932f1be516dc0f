/* emulator.h -- a GPU runtime in host memory, so that tests can run the kernels without a GPU:
 * the functions of CUDA's and HIP's runtime that runtime.h maps.
 *
 * Order    Work of a stream runs as late as possible: when the host synchronizes with it.  A host
 *          that reads a result or overwrites an input without synchronizing fails its test.
 * Memory   The host cannot access device memory (PROT_NONE) except while a kernel or a copy runs.
 *          New allocations are filled with NaN.  Pinned memory is ordinary host memory.
 * Errors   A kernel that gets a pointer to unpinned host memory aborts the program. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/emulator/thread_block.h"

#include <stdbool.h>
#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct emulator_stream *gpu_stream; /* NULL: the default stream, which is synchronous */
typedef struct emulator_event *gpu_event;
typedef struct emulator_graph *gpu_graph, *gpu_graph_exec;
typedef enum {
    EMULATOR_SUCCESS,
    EMULATOR_INVALID_VALUE,
    EMULATOR_OUT_OF_MEMORY,
    EMULATOR_CAPTURE_UNSUPPORTED,
} gpu_error;

/* The environment variable LLAMERO_EMULATED_GPUS, or 1. */
gpu_error emulator_device_count(int *count);
gpu_error emulator_set_device(int device);
/* "emulated GPU 0", or LLAMERO_EMULATED_NAME. */
void emulator_device_name(char *to, size_t bytes, int device);
/* As NVIDIA's, 90 for 9.0: LLAMERO_EMULATED_CAPABILITY, or 0 for a device of another vendor. */
int emulator_compute_capability(void);
gpu_error emulator_mem_info(size_t *available, size_t *total);
gpu_error emulator_malloc(void **out, size_t bytes);
gpu_error emulator_free(void *memory);
gpu_error emulator_host_alloc(void **out, size_t bytes);
gpu_error emulator_host_free(void *memory);
bool emulator_is_device_memory(const void *pointer);

gpu_error emulator_stream_create(gpu_stream *out);
gpu_error emulator_stream_destroy(gpu_stream stream);
gpu_error emulator_stream_synchronize(gpu_stream stream);
gpu_error emulator_device_synchronize(void);
gpu_error emulator_memcpy(void *to, const void *from, size_t bytes, gpu_stream stream);
gpu_error emulator_memset(void *to, int byte, size_t bytes, gpu_stream stream);

gpu_error emulator_event_create(gpu_event *out);
gpu_error emulator_event_destroy(gpu_event event);
gpu_error emulator_event_record(gpu_event event, gpu_stream stream);
gpu_error emulator_event_wait(gpu_stream stream, gpu_event event);
gpu_error emulator_event_synchronize(gpu_event event);
gpu_error emulator_event_elapsed(float *ms, gpu_event from, gpu_event to);

/* Between begin and end, the launches, copies and memsets of a stream are recorded in a graph
 * instead of executed.  Everything else that involves the stream, and an allocation, fails with
 * CAPTURE_UNSUPPORTED and makes end_capture fail, which then returns no graph.  One stream captures
 * at a time.  An instantiated graph can be launched any number of times; what was recorded is freed
 * when graph and exec are destroyed. */
gpu_error emulator_stream_begin_capture(gpu_stream stream);
gpu_error emulator_stream_end_capture(gpu_stream stream, gpu_graph *out);
gpu_error emulator_graph_instantiate(gpu_graph_exec *out, gpu_graph graph);
gpu_error emulator_graph_launch(gpu_graph_exec exec, gpu_stream stream);
gpu_error emulator_graph_exec_destroy(gpu_graph_exec exec);
gpu_error emulator_graph_destroy(gpu_graph graph);

gpu_error emulator_last_error(void); /* of this thread's calls; resets it */
const char *emulator_error_string(gpu_error error);

/* Copies the closure and queues the launch.  A launch beyond the limits of real devices only sets
 * the last error. */
void emulator_launch(const struct kernel_launch *launch, gpu_stream stream);

/* In relaxed mode work runs at once and kernels accept any host pointer: for tests of single
 * operations. */
void emulator_set_relaxed(bool relaxed);
/* From now on streams that have run no kernel execute their work as early as possible: when it is
 * submitted, and what they wait for before it.  So a copy that should wait for a kernel, and does
 * not, runs before it. */
void emulator_set_eager_copies(bool eager);
/* What the host submits to a stream, or waits for. */
enum emulator_work {
    EMULATOR_KERNEL,
    EMULATOR_COPY,
    EMULATOR_MEMSET,
    EMULATOR_GRAPH,
    EMULATOR_WAIT,
};
/* From now on calls on_work for every launch, copy and memset before it is executed, and for every
 * wait of the host; NULL: for none.  kernel: its name as launched; bytes: of a copy or memset, or
 * the number of nodes of a graph.  What a stream captures is not reported. */
void emulator_observe(void (*on_work)(enum emulator_work work, const char *kernel, size_t bytes));
/* In dry mode nothing is executed, and device memory has no limit and no pages: it counts the work
 * of models larger than the host's memory.  Change it only while nothing is allocated. */
void emulator_set_dry(bool dry);
/* Aborts if a kernel argument points to memory that a device cannot access. */
void emulator_check_pointer(const char *kernel, const void *pointer);

#if defined(__cplusplus)
}
#endif
