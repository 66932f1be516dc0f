// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/emulator.h"

#include "backends/gpu/emulator/death_test.h"

enum { THREADS = 64 };

static void add_one(const void *closure)
{
    int *const *x = closure;
    (*x)[thread_block_thread_idx->x]++;
}

static void launch(int *x, gpu_stream stream)
{
    struct kernel_launch k = {
        .name = "add_one",
        .grid = {1, 1, 1},
        .block = {THREADS, 1, 1},
        .warp_size = 32,
        .body = add_one,
        .closure = &x,
        .closure_bytes = sizeof x,
    };
    emulator_launch(&k, stream);
}

static void access_memory(void *pointer) { ++*(volatile int *)pointer; }
static void pass_to_kernel(void *pointer) { emulator_check_pointer("add_one", pointer); }

TEST(host_access_to_device_memory_faults_but_copies_work)
{
    int host[THREADS] = {0}, *x, *pinned;
    gpu_stream stream;
    CHECK(!emulator_malloc((void **)&x, sizeof host) && emulator_is_device_memory(x));
    CHECK(!emulator_host_alloc((void **)&pinned, sizeof host));
    CHECK(!emulator_stream_create(&stream));
    check_dies(SIGSEGV, NULL, access_memory, x);
    check_dies(SIGABRT, "kernel add_one: an argument points to unpinned host memory",
               pass_to_kernel, host);
    access_memory(pinned);
    pass_to_kernel(x), pass_to_kernel(pinned), pass_to_kernel(NULL);
    CHECK(!emulator_memcpy(x, host, sizeof host, stream));
    launch(x, stream);
    CHECK(!emulator_memcpy(host, x, sizeof host, stream));
    for (int i = 0; i < THREADS; i++) CHECK(host[i] == 1);
    check_dies(SIGSEGV, NULL, access_memory, x);
    CHECK(!emulator_stream_destroy(stream));
    CHECK(!emulator_free(x) && !emulator_host_free(pinned));
    CHECK(emulator_free(host));
}

static size_t observed[EMULATOR_WAIT + 1];
static void observe(enum emulator_work work, const char *kernel, size_t bytes)
{
    observed[work] += work == EMULATOR_KERNEL ? !strcmp(kernel, "add_one") : bytes + 1;
}

TEST(observer_sees_launches_copies_memsets_and_waits)
{
    int host[THREADS] = {0}, *x;
    gpu_stream stream;
    CHECK(!emulator_malloc((void **)&x, sizeof host) && !emulator_stream_create(&stream));
    emulator_observe(observe);
    CHECK(!emulator_memset(x, 0, 8, stream));
    launch(x, stream);
    launch(x, stream);
    CHECK(!emulator_memcpy(x, host, 16, stream));
    CHECK(!emulator_stream_synchronize(stream));
    emulator_observe(NULL);
    launch(x, stream);
    CHECK(observed[EMULATOR_KERNEL] == 2 && observed[EMULATOR_MEMSET] == 9);
    CHECK(observed[EMULATOR_COPY] == 17 && observed[EMULATOR_WAIT] == 1);
    CHECK(!emulator_stream_destroy(stream) && !emulator_free(x));
}

TEST(dry_device_executes_nothing_and_has_any_amount_of_memory)
{
    int *x, *pinned;
    gpu_stream stream;
    emulator_set_dry(true);
    CHECK(!emulator_malloc((void **)&x, (size_t)1 << 40));
    CHECK(!emulator_host_alloc((void **)&pinned, THREADS * sizeof *pinned));
    CHECK(!emulator_stream_create(&stream));
    pinned[0] = 5;
    launch(pinned, stream);
    CHECK(!emulator_memset(x, 0, (size_t)1 << 40, stream));
    CHECK(!emulator_memcpy(pinned, x, sizeof *x, stream));
    CHECK(!emulator_stream_synchronize(stream));
    CHECK(pinned[0] == 5);
    CHECK(!emulator_stream_destroy(stream) && !emulator_free(x) && !emulator_host_free(pinned));
    emulator_set_dry(false);
}

TEST(stream_work_runs_when_the_host_synchronizes)
{
    int *x;
    gpu_stream first, second;
    gpu_event event;
    CHECK(!emulator_host_alloc((void **)&x, THREADS * sizeof *x));
    CHECK(!emulator_stream_create(&first) && !emulator_stream_create(&second));
    CHECK(!emulator_event_create(&event));
    CHECK(!emulator_memset(x, 0, THREADS * sizeof *x, first));
    launch(x, first);
    CHECK(!emulator_event_record(event, first));
    launch(x, first);
    CHECK(x[0] == -1); /* the fill pattern of a new allocation */
    CHECK(!emulator_event_wait(second, event));
    CHECK(!emulator_stream_synchronize(second));
    CHECK(x[0] == 1);
    CHECK(!emulator_event_synchronize(event));
    CHECK(!emulator_stream_synchronize(first));
    CHECK(x[0] == 2);
    launch(x, first);
    launch(x, NULL); /* the default stream synchronizes with all others */
    CHECK(x[0] == 4);
    CHECK(!emulator_event_destroy(event));
    CHECK(!emulator_stream_destroy(first) && !emulator_stream_destroy(second));
    CHECK(!emulator_host_free(x));
}

TEST(waiting_for_an_event_that_was_reached_or_never_recorded_does_nothing)
{
    gpu_stream first, second;
    gpu_event event;
    CHECK(!emulator_stream_create(&first) && !emulator_stream_create(&second));
    CHECK(!emulator_event_create(&event));
    for (int is_recorded = 0; is_recorded < 2; is_recorded++) {
        if (is_recorded) {
            CHECK(!emulator_event_record(event, first));
            CHECK(!emulator_stream_destroy(first)); /* which completes its work */
        }
        CHECK(!emulator_event_synchronize(event));
        CHECK(!emulator_event_wait(second, event));
        CHECK(!emulator_stream_synchronize(second));
    }
    CHECK(!emulator_event_destroy(event) && !emulator_stream_destroy(second));
}

TEST(memory_is_accounted_and_an_invalid_launch_sets_the_last_error)
{
    size_t before, after, total;
    void *x;
    struct kernel_launch k = {.grid = {1, 65536, 1}, .block = {1, 1, 1}, .warp_size = 32};
    CHECK(!emulator_mem_info(&before, &total));
    CHECK(!emulator_malloc(&x, 1 << 20));
    CHECK(!emulator_mem_info(&after, &total) && before - after == 1 << 20);
    CHECK(!emulator_free(x));
    CHECK(!strcmp(emulator_error_string(emulator_malloc(&x, total + 1)), "out of memory"));
    emulator_launch(&k, NULL);
    CHECK(!strcmp(emulator_error_string(emulator_last_error()), "invalid value"));
    CHECK(!emulator_last_error());
}

TEST(graph_repeats_what_a_stream_recorded)
{
    int *x, *pinned, pageable = 0;
    gpu_stream stream, other;
    gpu_graph graph;
    gpu_graph_exec exec;
    CHECK(!emulator_host_alloc((void **)&x, THREADS * sizeof *x));
    CHECK(!emulator_host_alloc((void **)&pinned, sizeof *pinned));
    CHECK(!emulator_stream_create(&stream) && !emulator_stream_create(&other));
    memset(x, 0, THREADS * sizeof *x);
    memset(observed, 0, sizeof observed);
    emulator_observe(observe);
    CHECK(emulator_stream_end_capture(stream, &graph) == EMULATOR_INVALID_VALUE && !graph);
    CHECK(!emulator_stream_begin_capture(stream));
    CHECK(emulator_stream_begin_capture(other) == EMULATOR_INVALID_VALUE);
    launch(x, stream);
    launch(x, stream);
    CHECK(!emulator_memcpy(pinned, x, sizeof *x, stream));
    launch(x, other); /* other streams run as always */
    CHECK(!emulator_stream_synchronize(other));
    CHECK(x[0] == 1 && observed[EMULATOR_KERNEL] == 1 && !observed[EMULATOR_COPY]);
    CHECK(!emulator_stream_end_capture(stream, &graph));
    CHECK(!emulator_graph_instantiate(&exec, graph) && !emulator_graph_destroy(graph));
    CHECK(!emulator_graph_launch(exec, stream) && !emulator_graph_launch(exec, stream));
    CHECK(!emulator_stream_synchronize(stream));
    CHECK(x[0] == 5 && *pinned == 5 && observed[EMULATOR_GRAPH] == 2 * (3 + 1));
    emulator_observe(NULL);
    CHECK(!emulator_graph_launch(exec, stream) && !emulator_graph_exec_destroy(exec));
    CHECK(x[0] == 7);
    for (int i = 0; i < 4; i++) {
        void *memory;
        gpu_error error = EMULATOR_SUCCESS;
        CHECK(!emulator_stream_begin_capture(stream));
        if (i == 0) error = emulator_stream_synchronize(stream);
        if (i == 1) error = emulator_memcpy(&pageable, x, sizeof *x, stream);
        if (i == 2) error = emulator_malloc(&memory, 64);
        if (i == 3) error = emulator_memset(x, 0, sizeof *x, NULL);
        CHECK(error == EMULATOR_CAPTURE_UNSUPPORTED);
        CHECK(emulator_stream_end_capture(stream, &graph) == EMULATOR_CAPTURE_UNSUPPORTED);
        CHECK(!graph);
    }
    CHECK(!emulator_stream_destroy(stream) && !emulator_stream_destroy(other));
    CHECK(!emulator_host_free(x) && !emulator_host_free(pinned));
}
