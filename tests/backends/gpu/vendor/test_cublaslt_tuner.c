// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/file.h"
#include "tensor/device.h"
#include "tensor/tuning.h"

TEST(a_tuner_that_has_timed_nothing_leaves_no_file)
{
    struct gpu_queue on = {0};
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuner *t = cublaslt_tuner_open(&on.base, path);
    cublaslt_tuner_tell(t);
    cublaslt_tuner_close(t);
    CHECK(!file_exists(path));
}

static size_t entries(const char *path)
{
    struct tuning t;
    tuning_open(&t, path);
    size_t count = t.count;
    tuning_close(&t);
    return count;
}

/* Two products are met twice, by two queues; then the file has two. */
TEST(what_one_run_times_the_next_one_finds)
{
    const char *path = test_path(test_folder(), "gemm.json");
    int count = 0;
    if (GPU_NAME(count)(&count) || !count) skip();
    for (int run = 0; run < 2; run++) {
        struct queue *on;
        CHECK_STATUS(OK, GPU_NAME(open)(&on, 0));
        GPU_NAME(gemm_tune)(on, path);
        on->measuring = true;
        for (int i = 0; i < 4; i++) {
            struct gemm g = {32, 48, 16, .accumulate = i & 1, .a = GEMM_BF16, .b = GEMM_BF16};
            g.out = BF16;
            CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &(struct gemm_io){0}, on));
        }
        GPU_NAME(gemm_close)(on);
        GPU_NAME(close)(on);
        CHECK(entries(path) == 2);
    }
}

#if !defined(GPU_CUDA)
#include "backends/gpu/vendor/stub_cublaslt.h"

/* A product after a measuring pass. */
static void measure_and_run(const char *path)
{
    struct gemm g = {16, 16, 16, .a = GEMM_BF16, .b = GEMM_BF16, .out = BF16};
    struct queue *on;
    void *at;
    CHECK_STATUS(OK, GPU_NAME(open)(&on, 0));
    GPU_NAME(gemm_tune)(on, path);
    on->measuring = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &(struct gemm_io){0}, on));
    on->measuring = false;
    size_t scratch = on->scratch.peak;
    CHECK_STATUS(OK, arena_init(&on->scratch, scratch, queue_memory(on)));
    CHECK_STATUS(OK, queue_memory(on)->take(4096, &at));
    struct gemm_io io = {.a = at, .b = (char *)at + 1024, .c = (char *)at + 2048};
    CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &io, on));
    CHECK_STATUS(OK, queue_wait(on));
    queue_memory(on)->give(at, 4096);
    GPU_NAME(gemm_close)(on);
    GPU_NAME(close)(on);
}

TEST(an_algorithm_that_fails_when_it_is_timed_is_not_taken)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct stub_cublaslt before = stub_cublaslt;
    stub_cublaslt_break(true);
    measure_and_run(path);
    stub_cublaslt_break(false);
    CHECK(entries(path) == 1 && stub_cublaslt.failed == before.failed + 1);
    /* The next run takes it from the file: nothing is timed. */
    int runs[2] = {stub_cublaslt.ran[1], stub_cublaslt.ran[2]};
    measure_and_run(path);
    CHECK(stub_cublaslt.ran[0] == before.ran[0]);
    CHECK(stub_cublaslt.ran[1] + stub_cublaslt.ran[2] == runs[0] + runs[1] + 1);
}

/* What is no algorithm of the library's, or not in its digits, is timed anew. */
TEST(an_entry_of_the_file_that_makes_no_sense_is_replaced)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct text bad = {0};
    struct tuning t;
    measure_and_run(path);
    for (int i = 0; i < 2; i++) {
        tuning_open(&t, path);
        text_clear(&bad);
        for (size_t k = 0; k < 128; k++) text_adds(&bad, i ? "7" : "x");
        char *key = heap_string(t.entries[0].key, strlen(t.entries[0].key));
        tuning_put(&t, key, bad.data);
        CHECK_STATUS(OK, tuning_save(&t));
        tuning_close(&t);
        measure_and_run(path);
        tuning_open(&t, path);
        CHECK(t.count == 1 && strcmp(tuning_find(&t, key), bad.data));
        tuning_close(&t);
        free(key);
    }
    text_release(&bad);
}
#endif
