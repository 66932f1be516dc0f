/* emulator.h -- a GPU for the tests of kernels, where there is none: its runtime's functions, and
 * launches whose every thread is a fiber.
 *
 * Order    Work of a stream is done as late as it may be: when somebody waits for it.  So a host
 *          that reads a result, or overwrites what a kernel reads, without waiting shows in a test.
 *          Blocks run one after the other; kernels of a wave of 64 run everything backwards, so
 *          what depends on the order of threads or blocks differs from a wave of 32.
 * Memory   A device's is out of the host's reach (PROT_NONE) but while a kernel or a copy runs.
 *          New memory, and a block's dynamic shared memory, is full of NaN.  Pinned memory is
 *          ordinary.
 * Errors   What a device calls undefined ends the program, and says where: threads of a wave or a
 *          block that wait at different barriers, a shuffle from a lane that has returned, a kernel
 *          that is given memory of the host that is not pinned. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

struct gpu_dim {
    unsigned x, y, z;
};

typedef struct gpu_emulator_stream *gpu_stream; /* NULL: everything is done at once */
typedef struct gpu_emulator_event *gpu_event;
typedef enum { GPU_EMULATOR_OK, GPU_EMULATOR_INVALID, GPU_EMULATOR_MEMORY } gpu_error;

gpu_error gpu_emulator_device_count(int *count);
gpu_error gpu_emulator_set_device(int device);
gpu_error gpu_emulator_memory(size_t *available, size_t *total);
gpu_error gpu_emulator_malloc(void **out, size_t bytes);
gpu_error gpu_emulator_free(void *at);
gpu_error gpu_emulator_host_alloc(void **out, size_t bytes);
gpu_error gpu_emulator_host_free(void *at);
bool gpu_emulator_is_device(const void *at);

gpu_error gpu_emulator_stream_create(gpu_stream *out);
gpu_error gpu_emulator_stream_destroy(gpu_stream stream);
gpu_error gpu_emulator_synchronize(gpu_stream stream);
gpu_error gpu_emulator_synchronize_all(void);
gpu_error gpu_emulator_copy(void *to, const void *from, size_t bytes, gpu_stream stream);
gpu_error gpu_emulator_set(void *at, int byte, size_t bytes, gpu_stream stream);

gpu_error gpu_emulator_event_create(gpu_event *out);
gpu_error gpu_emulator_event_destroy(gpu_event event);
gpu_error gpu_emulator_event_record(gpu_event event, gpu_stream stream);
gpu_error gpu_emulator_event_wait(gpu_stream stream, gpu_event event);
gpu_error gpu_emulator_event_synchronize(gpu_event event);
gpu_error gpu_emulator_event_elapsed(float *ms, gpu_event from, gpu_event to);

gpu_error gpu_emulator_last_error(void); /* of this thread's launches; forgotten by this */
const char *gpu_emulator_text(gpu_error error);

/* body(closure) once for each thread; the closure is copied.  A launch that no device could take
 * is last_error's. */
struct gpu_emulator_kernel {
    const char *name;
    struct gpu_dim grid, block;
    size_t shared_bytes, closure_bytes;
    int wave; /* 32 or 64 */
    void (*body)(const void *closure);
    const void *closure;
};
void gpu_emulator_launch(const struct gpu_emulator_kernel *kernel, gpu_stream stream);

/* While plain, work is done at once, and kernels are given any memory of the host: for tests of
 * single operations. */
void gpu_emulator_plain(bool plain);
/* Before a launch: what a kernel is given must be memory that a device reaches. */
void gpu_emulator_check_pointer(const char *kernel, const void *at);

/* For kernels only: what the running thread knows of itself. */
extern struct gpu_dim *gpu_emulator_thread, gpu_emulator_block, gpu_emulator_block_size,
    gpu_emulator_grid_size;
void *gpu_emulator_shared(void); /* the launch's shared_bytes, the same for all of a block */
void gpu_emulator_barrier(const char *file, int line);
enum { GPU_EMULATOR_SLOT = 64 }; /* bytes of a lane, at most */
struct gpu_emulator_slot {
    unsigned char bytes[GPU_EMULATOR_SLOT] __attribute__((aligned(16)));
};
/* A barrier of the wave: each lane gives `bytes`, and what all gave is returned, by lane; valid
 * until this lane's next call but one. */
const struct gpu_emulator_slot *gpu_emulator_gather(const void *mine, size_t bytes,
                                                    const char *file, int line);
/* The lane took part in this thread's last gather; else the program ends. */
void gpu_emulator_check_lane(int lane, const char *file, int line);

#if defined(__cplusplus)
}
#endif
