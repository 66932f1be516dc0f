// SPDX-License-Identifier: Apache-2.0
#include "tensor/tuning.h"

#include "base/file.h"
#include "base/log.h"
#include "test.h"

#include <sys/stat.h>

TEST(key_distinguishes_processors_threads_and_matmuls)
{
    const struct tuned_device devices[] = {
        {"cpu avx2", "P", 2}, {"cpu avx512", "P", 2}, {"cpu avx2", "Q", 2}, {"cpu avx2", "P", 3}};
    const struct tuned_matmul products[] = {
        {1, 2, 3, false, false, false, BF16, F32}, {2, 1, 3, false, false, false, BF16, F32},
        {1, 3, 2, false, false, false, BF16, F32}, {1, 2, 3, true, false, false, BF16, F32},
        {1, 2, 3, false, true, false, BF16, F32},  {1, 2, 3, false, false, true, BF16, F32},
        {1, 2, 3, false, false, false, F32, F32},  {1, 2, 3, false, false, false, BF16, BF16}};
    enum { D = sizeof devices / sizeof *devices, P = sizeof products / sizeof *products };
    struct text keys[D * P] = {0};
    for (int i = 0; i < D * P; i++) {
        tuning_key(&keys[i], &devices[i / P], &products[i % P]);
        for (int j = 0; j < i; j++) CHECK(strcmp(keys[i].data, keys[j].data) != 0);
    }
    CHECK(!strcmp(keys[4].data, "cpu avx2, P, 2 threads: A B^T of 1 x 2 x 3, bfloat16 to float32"));
    for (int i = 0; i < D * P; i++) text_release(&keys[i]);
}

TEST(saved_entries_are_merged_with_those_of_others)
{
    const char *path = test_path(test_folder(), "cache/deep/gemm.json");
    struct tuning one, other, later;
    tuning_open(&one, path);
    tuning_open(&other, path);
    CHECK(!tuning_find(&one, "a"));
    tuning_set(&one, "a", "wide");
    tuning_set(&one, "both", "far");
    tuning_set(&other, "b \"quoted\"", "near");
    tuning_set(&other, "both", "near");
    CHECK(!strcmp(tuning_find(&one, "a"), "wide"));
    CHECK_STATUS(OK, tuning_save(&one));
    CHECK_STATUS(OK, tuning_save(&other));
    tuning_open(&later, path);
    CHECK(later.count == 3);
    CHECK(!strcmp(tuning_find(&later, "a"), "wide"));
    CHECK(!strcmp(tuning_find(&later, "b \"quoted\""), "near"));
    CHECK(!strcmp(tuning_find(&later, "both"), "near"));
    tuning_set(&later, "a", "far"); /* replaces the old one */
    CHECK(later.count == 3 && !strcmp(tuning_find(&later, "a"), "far"));
    tuning_close(&one), tuning_close(&other), tuning_close(&later);
}

TEST(file_is_not_written_without_new_entries)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuning t;
    tuning_open(&t, path);
    CHECK_STATUS(OK, tuning_save(&t));
    CHECK(!file_exists(path));
    tuning_set(&t, "a", "wide");
    CHECK_STATUS(OK, tuning_save(&t));
    CHECK_STATUS(OK, file_remove_tree(path));
    CHECK_STATUS(OK, tuning_save(&t));
    CHECK(!file_exists(path));
    tuning_close(&t);
}

TEST(damaged_file_is_ignored_and_replaced)
{
    static const char *const damaged[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"format\": 2}",
        "{\"format\": 1, \"gemms\": {}}",
        "{\"format\": 2, \"gemms\": []}",
        "{\"format\": 2, \"gemms\": {\"a\": 3}}",
        "{\"format\": 2, \"gemms\": {\"a\": \"x\", \"b\": null}}"};
    const char *path = test_path(test_folder(), "gemm.json");
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct tuning t;
        CHECK_STATUS(OK, file_write(path, damaged[i], strlen(damaged[i])));
        tuning_open(&t, path);
        CHECK(t.count == 0);
        tuning_set(&t, "a", "wide");
        CHECK_STATUS(OK, tuning_save(&t));
        tuning_close(&t);
        tuning_open(&t, path);
        CHECK(t.count == 1 && !strcmp(tuning_find(&t, "a"), "wide"));
        tuning_close(&t);
    }
}

TEST(warning_names_a_file_of_another_format)
{
    const char *folder = test_folder(), *path = test_path(folder, "gemm.json");
    const char *log = test_path(folder, "log.txt"), *old = "{\"format\": 1, \"gemms\": {}}";
    struct tuning t;
    struct text lines = {0};
    CHECK_STATUS(OK, file_write(path, old, strlen(old)));
    CHECK_STATUS(OK, log_open(log));
    log_set_quiet(true);
    tuning_open(&t, path);
    log_set_quiet(false);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(log, 4096, &lines));
    CHECK(strstr(lines.data, "/gemm.json: \"format\" must be 2; the file is ignored"));
    tuning_close(&t);
    text_release(&lines);
}

TEST(truncated_file_is_ignored_or_complete)
{
    const char *folder = test_folder(), *path = test_path(folder, "gemm.json");
    struct text bytes = {0};
    struct tuning t;
    tuning_open(&t, path);
    tuning_set(&t, "a", "wide");
    tuning_set(&t, "b", "far");
    CHECK_STATUS(OK, tuning_save(&t));
    tuning_close(&t);
    CHECK_STATUS(OK, file_read(path, 1 << 16, &bytes));
    for (size_t len = 0; len <= bytes.len; len++) {
        CHECK_STATUS(OK, file_write(path, bytes.data, len));
        tuning_open(&t, path);
        CHECK(t.count == (len + 1 >= bytes.len ? 2 : 0)); /* the last byte is the newline */
        tuning_close(&t);
    }
    text_release(&bytes);
}

TEST(save_fails_if_the_folder_cannot_be_created)
{
    const char *folder = test_folder(), *file = test_path(folder, "file");
    struct tuning t;
    CHECK_STATUS(OK, file_write(file, "x", 1));
    tuning_open(&t, test_path(folder, "file/gemm.json"));
    tuning_set(&t, "a", "wide");
    CHECK_STATUS(IO, tuning_save(&t));
    CHECK_MESSAGE("file");
    tuning_close(&t);
}

TEST(default_path_is_in_the_user_cache)
{
    const char *names[] = {"XDG_CACHE_HOME", "HOME"};
    char *old[2];
    for (int i = 0; i < 2; i++) {
        const char *value = getenv(names[i]);
        old[i] = value ? heap_strdup(value) : NULL;
    }
    setenv("XDG_CACHE_HOME", "/caches", 1), setenv("HOME", "/home/u", 1);
    char *path = tuning_default_path();
    CHECK(!strcmp(path, "/caches/llamero/gemm.json"));
    free(path);
    setenv("XDG_CACHE_HOME", "relative", 1); /* must be ignored by the XDG specification */
    path = tuning_default_path();
    CHECK(!strcmp(path, "/home/u/.cache/llamero/gemm.json"));
    free(path);
    unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
    CHECK(!tuning_default_path());
    for (int i = 0; i < 2; i++) {
        if (old[i]) setenv(names[i], old[i], 1);
        free(old[i]);
    }
}
