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

TEST(gpu_queue_zeroes_every_byte_of_large_pinned_memory)
{
    size_t bytes = ((size_t)9 << 20) + 3, ones = 0;
    struct queue *queue;
    struct arena shared;
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    CHECK_STATUS(OK, arena_init(&shared, bytes, queue_shared_allocator(queue)));
    for (size_t i = 0; i < bytes; i++) ones += shared.base[i] != 0;
    CHECK(!ones);
    memset(shared.base, 1, bytes);
    CHECK_STATUS(OK, queue_zero(queue, shared.base, bytes - 1));
    for (size_t i = 0; i < bytes; i++) ones += shared.base[i];
    CHECK(ones == 1 && shared.base[bytes - 1] == 1);
    arena_release(&shared);
    gpu_emu32_close(queue);
}

TEST(only_a_driver_older_than_the_toolkit_cannot_run_ptx_on_gpus_without_binary_code)
{
    static const int with_binary[] = {80, 86, 89, 90, 100, 103};
    for (int i = 0; i < 6; i++)
        CHECK(!gpu_emu32_lacks_driver_for_ptx(with_binary[i], 13000, 13010));
    CHECK(gpu_emu32_lacks_driver_for_ptx(120, 13000, 13010));
    CHECK(!gpu_emu32_lacks_driver_for_ptx(120, 13010, 13010));
    CHECK(!gpu_emu32_lacks_driver_for_ptx(120, 13020, 13010));
    CHECK(gpu_emu32_lacks_driver_for_ptx(100, 12060, 12070)); /* that nvcc knows no sm_100 */
    CHECK(!gpu_emu32_lacks_driver_for_ptx(0, 0, 0));          /* another vendor's GPU */
}

TEST(flags_of_hipcc_tell_for_which_architectures_a_program_has_code)
{
    static const char two[] = "--offload-arch=gfx90a --offload-arch=gfx942:xnack- -g";
    CHECK(gpu_emu32_has_code(two, "gfx90a:sramecc+:xnack-"));
    CHECK(gpu_emu32_has_code(two, "gfx942:sramecc+:xnack-"));
    CHECK(gpu_emu32_has_code("--offload-arch=gfx90a,gfx950", "gfx950"));
    CHECK(!gpu_emu32_has_code(two, "gfx950:sramecc+"));
    CHECK(!gpu_emu32_has_code(two, "gfx90:xnack-") && !gpu_emu32_has_code(two, "gfx1100"));
    CHECK(gpu_emu32_has_code("--offload-arch=native", "gfx950"));
    CHECK(gpu_emu32_has_code("--offload-arch=gfx9-4-generic", "gfx942"));
    CHECK(gpu_emu32_has_code("--offload-arch=native --offload-arch=gfx90a", "gfx1100"));
    CHECK(gpu_emu32_has_code("", "") && gpu_emu32_has_code(two, ""));
    CHECK(gpu_emu32_has_code("", "gfx90a:sramecc+:xnack-"));
}

TEST(code_for_one_setting_of_xnack_does_not_run_with_the_other)
{
    static const char flags[] = "--offload-arch=gfx90a:xnack+,gfx942:sramecc+:xnack-,gfx950";
    CHECK(gpu_emu32_has_code(flags, "gfx90a:sramecc+:xnack+"));
    CHECK(!gpu_emu32_has_code(flags, "gfx90a:sramecc+:xnack-"));
    CHECK(gpu_emu32_has_code(flags, "gfx942:sramecc+:xnack-"));
    CHECK(!gpu_emu32_has_code(flags, "gfx942:sramecc+:xnack+"));
    CHECK(gpu_emu32_has_code(flags, "gfx950:sramecc+:xnack+"));
    CHECK(
        gpu_emu32_has_code("--offload-arch=gfx90a --offload-arch=gfx942:xnack-", "gfx90a:xnack+"));
}

TEST(a_gpu_without_code_is_told_how_to_build_it_if_it_is_supported)
{
    static const char flags[] = "--offload-arch=gfx942";
    CHECK_STATUS(OK, gpu_emu32_check_architecture(flags, "gfx942:sramecc+:xnack-", 3));
    CHECK_STATUS(UNSUPPORTED, gpu_emu32_check_architecture(flags, "gfx90a:sramecc+:xnack-", 3));
    CHECK_MESSAGE(
        "GPU 3 is a gfx90a:sramecc+:xnack-, for which this program has no code: rebuild it "
        "with HIP_ARCH=--offload-arch=gfx90a; it was built with --offload-arch=gfx942");
    CHECK_STATUS(UNSUPPORTED, gpu_emu32_check_architecture(flags, "gfx1100", 3));
    CHECK_MESSAGE("GPU 3 is a gfx1100, which is not supported: use gfx90a, gfx942 or gfx950");
    CHECK_STATUS(UNSUPPORTED, gpu_emu32_check_architecture(flags, "gfx908:sramecc+:xnack-", 3));
    CHECK_MESSAGE("which is not supported");
}

TEST(an_emulated_gpu_multiplies_fp8_from_capability_8_9_on)
{
    static const char *const capabilities[] = {"80", "86", "89", "90"};
    for (int i = 0; i < 4; i++) {
        struct queue *queue;
        setenv("LLAMERO_EMULATED_CAPABILITY", capabilities[i], 1);
        CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
        CHECK(gpu_emu32_ops.has_native_fp8(queue) == (i >= 2));
        gpu_emu32_close(queue);
    }
    unsetenv("LLAMERO_EMULATED_CAPABILITY");
}

TEST(opening_a_missing_gpu_fails)
{
    struct queue *queue;
    CHECK_STATUS(DEVICE, gpu_emu64_open(&queue, 7));
    CHECK_MESSAGE("GPU 7 cannot be used");
    CHECK(!queue);
    gpu_emu64_close(queue);
}

static enum status add(const struct ops *ops, const float *x, float *y, struct queue *queue)
{
    struct cast op = {.n = 5, .accumulate = true};
    return cast(ops, &op, &(struct cast_io){x, y}, queue);
}

/* As `llamero doctor` queries all devices and then uses the first one. */
TEST(a_kernel_runs_although_an_earlier_call_failed)
{
    struct queue *queue;
    struct gpu_description gpu;
    struct arena own;
    CHECK_STATUS(DEVICE, gpu_emu32_describe(99, &gpu));
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    CHECK_STATUS(OK, arena_init(&own, 4096, queue_device_allocator(queue)));
    float *x = arena_alloc(&own, 5, 4);
    CHECK_STATUS(OK, add(&gpu_emu32_ops, x, x, queue));
    CHECK_STATUS(OK, queue_wait(queue));
    arena_release(&own);
    gpu_emu32_close(queue);
}

static void check_graphs(enum status (*open)(struct queue **, int), void (*close)(struct queue *),
                         const struct ops *ops)
{
    struct queue *queue;
    struct arena own;
    struct queue_graph *graph = NULL;
    float one[5] = {1, 1, 1, 1, 1}, got[5];
    CHECK_STATUS(OK, open(&queue, 0));
    CHECK(queue_has_graphs(queue) && !queue_has_graphs(&(struct queue){0}));
    CHECK_STATUS(OK, arena_init(&own, 4096, queue_device_allocator(queue)));
    float *x = arena_alloc(&own, 5, 4), *y = arena_alloc(&own, 5, 4);
    CHECK_STATUS(OK, queue_copy(queue, x, one, sizeof one));
    CHECK_STATUS(OK, queue_begin_capture(queue));
    CHECK_STATUS(OK, add(ops, x, y, queue));
    CHECK_STATUS(OK, add(ops, x, y, queue));
    CHECK_STATUS(OK, queue_copy(queue, x, y, sizeof one));
    CHECK_STATUS(OK, queue_end_capture(queue, &graph));
    CHECK_STATUS(OK, queue_copy(queue, got, y, sizeof got));
    CHECK(got[4] == 0); /* recorded, not run */
    for (int i = 0; i < 3; i++) CHECK_STATUS(OK, queue_launch_graph(queue, graph));
    CHECK_STATUS(OK, queue_copy(queue, got, y, sizeof got));
    CHECK(got[0] == 2 + 2 * 2 + 2 * 6 && got[4] == got[0]);
    CHECK_STATUS(OK, queue_launch_graph(queue, graph));
    queue_free_graph(queue, graph);
    queue_free_graph(queue, NULL);
    CHECK_STATUS(OK, queue_copy(queue, got, y, sizeof got));
    CHECK(got[0] == 18 * 3);
    arena_release(&own);
    close(queue);
}

TEST(graph_runs_what_was_recorded_with_each_launch)
{
    check_graphs(gpu_emu32_open, gpu_emu32_close, &gpu_emu32_ops);
    check_graphs(gpu_emu64_open, gpu_emu64_close, &gpu_emu64_ops);
}

TEST(capture_fails_where_the_host_waits_or_reads_and_the_queue_works_afterwards)
{
    struct queue *queue;
    struct arena own, other;
    struct queue_graph *graph;
    float got[5];
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    CHECK_STATUS(OK, arena_init(&own, 4096, queue_device_allocator(queue)));
    float *x = arena_alloc(&own, 5, 4);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(OK, queue_begin_capture(queue));
        if (i == 0) CHECK_STATUS(DEVICE, queue_wait(queue));
        if (i == 1) CHECK_STATUS(DEVICE, queue_copy(queue, got, x, sizeof got));
        if (i == 2) {
            CHECK_STATUS(DEVICE, arena_init(&other, 64, queue_device_allocator(queue)));
            CHECK_MESSAGE("allocating 64 B");
        }
        CHECK_STATUS(DEVICE, queue_end_capture(queue, &graph));
        CHECK_MESSAGE("cannot record a graph");
        CHECK(!graph);
    }
    CHECK_STATUS(OK, add(&gpu_emu32_ops, x, x, queue));
    CHECK_STATUS(OK, queue_wait(queue));
    arena_release(&own);
    gpu_emu32_close(queue);
}
