// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"

#include "backends/gpu/gpu.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "test.h"

TEST(a_gpus_queue_has_memory_of_its_own_and_copies_it)
{
    struct queue *on;
    struct gpu_description is;
    struct arena own, shared;
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {0};
    int count;
    CHECK_STATUS(OK, gpu_emu32_count(&count));
    CHECK_STATUS(OK, gpu_emu32_describe(count - 1, &is));
    CHECK(is.free_bytes <= is.bytes && strlen(is.name));
    CHECK_STATUS(OK, gpu_emu32_open(&on, count - 1));
    CHECK_STATUS(OK, arena_init(&own, 4096, queue_memory(on)));
    CHECK_STATUS(OK, arena_init(&shared, 4096, queue_shared(on)));
    CHECK(gpu_emulator_is_device(own.base) && !gpu_emulator_is_device(shared.base));
    float *a = arena_take(&own, 5, 4), *b = arena_take(&own, 5, 4), *c = arena_take(&shared, 5, 4);
    CHECK(c[4] == 0);
    CHECK_STATUS(OK, queue_copy(on, y, a, sizeof y));
    CHECK(y[0] == 0 && y[4] == 0);
    CHECK_STATUS(OK, queue_copy(on, a, x, sizeof x));
    CHECK_STATUS(OK, queue_copy(on, b, a, sizeof x));
    CHECK_STATUS(OK, queue_zero(on, a, sizeof x[0]));
    CHECK_STATUS(OK, queue_copy(on, c, a, sizeof x));
    CHECK(c[0] == 0 && c[1] == 2);
    CHECK_STATUS(OK, queue_copy(on, y, b, sizeof y));
    CHECK(!memcmp(y, x, sizeof x));
    CHECK_STATUS(OK, queue_wait(on));
    arena_release(&own), arena_release(&shared);
    CHECK_STATUS(MEMORY, arena_init(&own, (size_t)1 << 40, queue_memory(on)));
    CHECK_MESSAGE("has no 1024.00 GiB");
    gpu_emu32_close(on);
}

TEST(a_gpu_that_is_not_there_cannot_be_opened)
{
    struct queue *on;
    CHECK_STATUS(DEVICE, gpu_emu64_open(&on, 7));
    CHECK_MESSAGE("GPU 7 cannot be used");
    CHECK(!on);
    gpu_emu64_close(on);
}
