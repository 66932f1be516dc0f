// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/cublaslt.h"
#include "base/file.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "tensor/tuning.h"

TEST(a_tuner_without_results_writes_no_file)
{
    struct gpu_queue queue = {0};
    const char *path = test_path(test_folder(), "gemm.json");
    struct cublaslt_tuner *t =
        cublaslt_tuner_open(&queue.base, &(struct tuning_files){.path = path, .measures = true});
    cublaslt_tuner_report(t);
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

/* Two GEMMs, each seen twice by two queues: the file has two entries. */
TEST(results_of_one_run_are_reused_by_the_next)
{
    const char *path = test_path(test_folder(), "gemm.json");
    int count = 0;
    if (GPU_NAME(count)(&count) || !count) skip();
    for (int run = 0; run < 2; run++) {
        struct queue *queue;
        CHECK_STATUS(OK, GPU_NAME(open)(&queue, 0));
        GPU_NAME(gemm_tune)(queue, &(struct tuning_files){.path = path, .measures = true});
        queue->sizing = true;
        for (int i = 0; i < 4; i++) {
            struct gemm g = {32, 48, 16, .accumulate = i & 1, .a = GEMM_BF16, .b = GEMM_BF16};
            g.out = BF16;
            CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &(struct gemm_io){0}, queue));
        }
        GPU_NAME(gemm_close)(queue);
        GPU_NAME(close)(queue);
        CHECK(entries(path) == 2);
    }
}

TEST(gemms_that_leave_multiprocessors_have_entries_of_their_own)
{
    const char *path = test_path(test_folder(), "gemm.json");
    const struct gemm g = {32, 48, 16, .a = GEMM_BF16, .b = GEMM_BF16, .out = BF16};
    struct queue *queue;
    int count = 0;
    if (GPU_NAME(count)(&count) || !count) skip();
    CHECK_STATUS(OK, GPU_NAME(open)(&queue, 0));
    GPU_NAME(gemm_tune)(queue, &(struct tuning_files){.path = path, .measures = true});
    queue->sizing = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &(struct gemm_io){0}, queue));
    GPU_NAME(leave_multiprocessors)(queue, 8);
    CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &(struct gemm_io){0}, queue));
    GPU_NAME(gemm_close)(queue);
    GPU_NAME(close)(queue);
    CHECK(entries(path) == 2);
}

#if !defined(GPU_CUDA)
#include "backends/gpu/vendor/stub_cublaslt.h"

/* One GEMM after a sizing pass; scaled: with factors in scratch, as of FP8 values kept as bf16. */
static void size_and_run_gemm(const struct tuning_files *files, bool scaled)
{
    struct gemm g = {16, 16, 16, .a = GEMM_BF16, .b = GEMM_BF16, .out = BF16, .scaled = scaled};
    struct queue *queue;
    void *at;
    CHECK_STATUS(OK, GPU_NAME(open)(&queue, 0));
    GPU_NAME(gemm_tune)(queue, files);
    queue->sizing = true;
    CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &(struct gemm_io){0}, queue));
    queue->sizing = false;
    size_t scratch = queue->scratch.peak;
    CHECK_STATUS(OK, arena_init(&queue->scratch, scratch, queue_device_allocator(queue)));
    CHECK_STATUS(OK, queue_device_allocator(queue)->alloc(4096, &at));
    const struct float8_scale *scale = (const void *)((char *)at + 3072);
    struct gemm_io io = {.a = at,
                         .b = (char *)at + 1024,
                         .c = (char *)at + 2048,
                         .a_scale = scale,
                         .b_scale = scale};
    CHECK_STATUS(OK, GPU_NAME(gemm)(&g, &io, queue));
    CHECK_STATUS(OK, queue_wait(queue));
    queue_device_allocator(queue)->free(at, 4096);
    GPU_NAME(gemm_close)(queue);
    GPU_NAME(close)(queue);
}

static void size_and_run_with(const struct tuning_files *files) { size_and_run_gemm(files, false); }

static void size_and_run(const char *path)
{
    size_and_run_with(&(struct tuning_files){.path = path, .measures = true});
}

/* Times with the second candidate failing, so that the third is the fastest of the file. */
static void write_file(const char *path)
{
    stub_cublaslt_break(true);
    size_and_run(path);
    stub_cublaslt_break(false);
    CHECK(entries(path) == 1);
}

TEST(a_run_without_tuning_uses_the_shipped_file_and_does_not_change_it)
{
    const char *path = test_path(test_folder(), "gemm.json");
    write_file(path);
    struct stub_cublaslt before = stub_cublaslt;
    struct text old = {0}, new = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &old));
    size_and_run_with(&(struct tuning_files){.shipped = path});
    CHECK(stub_cublaslt.ran[0] == before.ran[0]);
    CHECK(stub_cublaslt.ran[1] + stub_cublaslt.ran[2] == before.ran[1] + before.ran[2] + 1);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &new));
    CHECK(!strcmp(old.data, new.data));
    text_release(&old), text_release(&new);
}

/* Replaces the version of the only key of the file. */
static void set_version(const char *path, const char *version)
{
    struct text file = {0}, changed = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &file));
    char *at = strstr(file.data, "cuBLASLt ");
    CHECK(at);
    at += strlen("cuBLASLt ");
    text_addf(&changed, "%.*s%s%s", (int)(at - file.data), file.data, version,
              at + strspn(at, "0123456789"));
    CHECK_STATUS(OK, file_write(path, changed.data, changed.len));
    text_release(&file), text_release(&changed);
}

TEST(algorithms_of_another_library_version_are_not_used)
{
    const char *path = test_path(test_folder(), "gemm.json");
    write_file(path);
    set_version(path, "99");
    struct stub_cublaslt before = stub_cublaslt;
    size_and_run_with(&(struct tuning_files){.path = path});
    CHECK(stub_cublaslt.ran[0] == before.ran[0] + 1); /* the first of the heuristics */
    CHECK(entries(path) == 1);
}

TEST(the_users_file_goes_before_the_shipped_one)
{
    const char *path = test_path(test_folder(), "gemm.json");
    const char *shipped = test_path(test_folder(), "shipped.json");
    struct text bad = {0}, file = {0};
    struct tuning t;
    write_file(path);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &file));
    CHECK_STATUS(OK, file_write(shipped, file.data, file.len));
    for (size_t k = 0; k < 128; k++) text_adds(&bad, "x");
    tuning_open(&t, shipped);
    tuning_set(&t, t.entries[0].key, bad.data);
    CHECK_STATUS(OK, tuning_save(&t));
    tuning_close(&t);
    struct stub_cublaslt before = stub_cublaslt;
    size_and_run_with(&(struct tuning_files){.path = path, .shipped = shipped});
    CHECK(stub_cublaslt.ran[0] == before.ran[0]);
    size_and_run_with(&(struct tuning_files){.shipped = shipped});
    CHECK(stub_cublaslt.ran[0] == before.ran[0] + 1); /* its entry is invalid */
    text_release(&bad), text_release(&file);
}

/* Replaces the reduction scheme of the only algorithm of the file. */
static void set_reduction(const char *path, unsigned scheme)
{
    enum { DIGITS = 16 };
    struct tuning t;
    char word[DIGITS + 1], *key, *entry;
    tuning_open(&t, path);
    key = heap_strdup(t.entries[0].key);
    entry = heap_strdup(t.entries[0].variant);
    snprintf(word, sizeof word, "%016x", scheme);
    memcpy(entry + (ptrdiff_t)STUB_WORD_REDUCTION * DIGITS, word, DIGITS);
    tuning_set(&t, key, entry);
    CHECK_STATUS(OK, tuning_save(&t));
    tuning_close(&t);
    free(key), free(entry);
}

TEST(an_algorithm_of_a_file_may_add_partial_sums_in_float32_and_in_order_only)
{
    const char *path = test_path(test_folder(), "gemm.json");
    write_file(path);
    for (unsigned scheme = 0; scheme <= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE; scheme++) {
        bool allowed = scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
                       scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        struct stub_cublaslt before = stub_cublaslt;
        set_reduction(path, scheme);
        size_and_run_with(&(struct tuning_files){.path = path});
        CHECK(stub_cublaslt.ran[0] == before.ran[0] + !allowed); /* the first of the heuristics */
    }
}

TEST(an_algorithm_that_fails_during_timing_is_dropped)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct stub_cublaslt before = stub_cublaslt;
    stub_cublaslt_break(true);
    size_and_run(path);
    stub_cublaslt_break(false);
    CHECK(entries(path) == 1 && stub_cublaslt.failed == before.failed + 1);
    /* The next run takes the algorithm from the file without timing. */
    int runs[2] = {stub_cublaslt.ran[1], stub_cublaslt.ran[2]};
    size_and_run(path);
    CHECK(stub_cublaslt.ran[0] == before.ran[0]);
    CHECK(stub_cublaslt.ran[1] + stub_cublaslt.ran[2] == runs[0] + runs[1] + 1);
}

TEST(a_scaled_algorithm_that_fails_during_timing_leaves_its_scratch_to_the_next)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct stub_cublaslt before = stub_cublaslt;
    stub_cublaslt_break(true);
    size_and_run_gemm(&(struct tuning_files){.path = path, .measures = true}, true);
    stub_cublaslt_break(false);
    CHECK(entries(path) == 1 && stub_cublaslt.failed == before.failed + 1);
}

/* Entries that are not hexadecimal, or that the library rejects, are timed again. */
TEST(invalid_entries_of_the_file_are_replaced)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct text bad = {0};
    struct tuning t;
    size_and_run(path);
    for (int i = 0; i < 2; i++) {
        tuning_open(&t, path);
        text_clear(&bad);
        for (size_t k = 0; k < 128; k++) text_adds(&bad, i ? "7" : "x");
        char *key = heap_strdup(t.entries[0].key);
        tuning_set(&t, key, bad.data);
        CHECK_STATUS(OK, tuning_save(&t));
        tuning_close(&t);
        size_and_run(path);
        tuning_open(&t, path);
        CHECK(t.count == 1 && strcmp(tuning_find(&t, key), bad.data));
        tuning_close(&t);
        free(key);
    }
    text_release(&bad);
}
#endif
