// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/emulator.h"

#include "backends/gpu/emulator/death_test.h"

enum { THREADS = 64 };

static void add_one(const void *closure)
{
    int *const *x = closure;
    (*x)[gpu_emulator_thread->x]++;
}

static void launch(int *x, gpu_stream stream)
{
    struct gpu_emulator_kernel k = {
        .name = "add_one",
        .grid = {1, 1, 1},
        .block = {THREADS, 1, 1},
        .wave = 32,
        .body = add_one,
        .closure = &x,
        .closure_bytes = sizeof x,
    };
    gpu_emulator_launch(&k, stream);
}

static void touch(void *at) { ++*(volatile int *)at; }
static void give_to_a_kernel(void *at) { gpu_emulator_check_pointer("add_one", at); }

TEST(the_host_that_touches_a_devices_memory_dies_and_copies_of_it_do_not)
{
    int host[THREADS] = {0}, *x, *pinned;
    gpu_stream stream;
    CHECK(!gpu_emulator_malloc((void **)&x, sizeof host) && gpu_emulator_is_device(x));
    CHECK(!gpu_emulator_host_alloc((void **)&pinned, sizeof host));
    CHECK(!gpu_emulator_stream_create(&stream));
    check_ends(SIGSEGV, NULL, touch, x);
    check_ends(SIGABRT, "kernel add_one is given memory", give_to_a_kernel, host);
    touch(pinned);
    give_to_a_kernel(x), give_to_a_kernel(pinned), give_to_a_kernel(NULL);
    CHECK(!gpu_emulator_copy(x, host, sizeof host, stream));
    launch(x, stream);
    CHECK(!gpu_emulator_copy(host, x, sizeof host, stream));
    for (int i = 0; i < THREADS; i++) CHECK(host[i] == 1);
    check_ends(SIGSEGV, NULL, touch, x);
    CHECK(!gpu_emulator_stream_destroy(stream));
    CHECK(!gpu_emulator_free(x) && !gpu_emulator_host_free(pinned));
    CHECK(gpu_emulator_free(host));
}

TEST(work_of_a_stream_is_done_when_somebody_waits_for_it)
{
    int *x;
    gpu_stream first, second;
    gpu_event event;
    CHECK(!gpu_emulator_host_alloc((void **)&x, THREADS * sizeof *x));
    CHECK(!gpu_emulator_stream_create(&first) && !gpu_emulator_stream_create(&second));
    CHECK(!gpu_emulator_event_create(&event));
    CHECK(!gpu_emulator_set(x, 0, THREADS * sizeof *x, first));
    launch(x, first);
    CHECK(!gpu_emulator_event_record(event, first));
    launch(x, first);
    CHECK(x[0] == -1); /* as it was taken */
    CHECK(!gpu_emulator_event_wait(second, event));
    CHECK(!gpu_emulator_synchronize(second));
    CHECK(x[0] == 1);
    CHECK(!gpu_emulator_event_synchronize(event));
    CHECK(!gpu_emulator_synchronize(first));
    CHECK(x[0] == 2);
    launch(x, first);
    launch(x, NULL); /* the default stream waits for all */
    CHECK(x[0] == 4);
    CHECK(!gpu_emulator_event_destroy(event));
    CHECK(!gpu_emulator_stream_destroy(first) && !gpu_emulator_stream_destroy(second));
    CHECK(!gpu_emulator_host_free(x));
}

TEST(memory_is_counted_and_a_launch_no_device_takes_is_an_error)
{
    size_t before, after, total;
    void *x;
    struct gpu_emulator_kernel k = {.grid = {1, 65536, 1}, .block = {1, 1, 1}, .wave = 32};
    CHECK(!gpu_emulator_memory(&before, &total));
    CHECK(!gpu_emulator_malloc(&x, 1 << 20));
    CHECK(!gpu_emulator_memory(&after, &total) && before - after == 1 << 20);
    CHECK(!gpu_emulator_free(x));
    CHECK(!strcmp(gpu_emulator_text(gpu_emulator_malloc(&x, total + 1)), "out of memory"));
    gpu_emulator_launch(&k, NULL);
    CHECK(!strcmp(gpu_emulator_text(gpu_emulator_last_error()), "invalid value"));
    CHECK(!gpu_emulator_last_error());
}
