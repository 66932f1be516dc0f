// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"

#include "backends/gpu/gpu.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "test.h"

TEST(gpu_queue_allocates_device_and_pinned_memory_and_copies_between_them)
{
    struct queue *queue;
    struct gpu_description gpu;
    struct arena own, shared;
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {0};
    int count;
    CHECK_STATUS(OK, gpu_emu32_count(&count));
    CHECK_STATUS(OK, gpu_emu32_describe(count - 1, &gpu));
    CHECK(gpu.free_bytes <= gpu.bytes && strlen(gpu.name));
    CHECK_STATUS(OK, gpu_emu32_open(&queue, count - 1));
    CHECK_STATUS(OK, arena_init(&own, 4096, queue_device_allocator(queue)));
    CHECK_STATUS(OK, arena_init(&shared, 4096, queue_shared_allocator(queue)));
    CHECK(emulator_is_device_memory(own.base) && !emulator_is_device_memory(shared.base));
    float *a = arena_alloc(&own, 5, 4), *b = arena_alloc(&own, 5, 4),
          *c = arena_alloc(&shared, 5, 4);
    CHECK(c[4] == 0);
    CHECK_STATUS(OK, queue_copy(queue, y, a, sizeof y));
    CHECK(y[0] == 0 && y[4] == 0);
    CHECK_STATUS(OK, queue_copy(queue, a, x, sizeof x));
    CHECK_STATUS(OK, queue_copy(queue, b, a, sizeof x));
    CHECK_STATUS(OK, queue_zero(queue, a, sizeof x[0]));
    CHECK_STATUS(OK, queue_copy(queue, c, a, sizeof x));
    CHECK(c[0] == 0 && c[1] == 2);
    CHECK_STATUS(OK, queue_copy(queue, y, b, sizeof y));
    CHECK(!memcmp(y, x, sizeof x));
    CHECK_STATUS(OK, queue_wait(queue));
    arena_release(&own), arena_release(&shared);
    CHECK_STATUS(MEMORY, arena_init(&own, (size_t)1 << 40, queue_device_allocator(queue)));
    CHECK_MESSAGE("1024.00 GiB required");
    gpu_emu32_close(queue);
}

TEST(opening_a_missing_gpu_fails)
{
    struct queue *queue;
    CHECK_STATUS(DEVICE, gpu_emu64_open(&queue, 7));
    CHECK_MESSAGE("GPU 7 cannot be used");
    CHECK(!queue);
    gpu_emu64_close(queue);
}
