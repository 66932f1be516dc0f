// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/cublaslt.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "base/file.h"
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
    if (gpu_count(&count) || !count) skip();
    for (int run = 0; run < 2; run++) {
        struct queue *on;
        CHECK_STATUS(OK, gpu_open(&on, 0));
        gpu_tune(on, path);
        on->measuring = true;
        for (int i = 0; i < 4; i++) {
            struct gemm g = {256, 512, 128, .accumulate = i & 1, .a = GEMM_BF16, .b = GEMM_BF16};
            g.out = BF16;
            CHECK_STATUS(OK, gpu_gemm(&g, &(struct gemm_io){0}, on));
        }
        gpu_close(on);
        CHECK(entries(path) == 2);
    }
}
