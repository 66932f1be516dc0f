// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/log.h"
#include "train/memory_plan.h"

TEST(memory_plan_total_is_the_sum_of_its_kinds)
{
    struct memory_plan p = {0};
    for (int i = 0; i < MEMORY_COUNT; i++) p.bytes[i] = (size_t)1 << i;
    CHECK(memory_plan_total(&p) == ((size_t)1 << MEMORY_COUNT) - 1);
    CHECK(!strcmp(memory_plan_name(MEMORY_gradients), "gradients"));
    CHECK(strstr(memory_plan_text(MEMORY_optimizer), "moments"));
}

TEST(memory_plan_of_a_cpu_has_one_memory)
{
    struct memory_plan p = {.bytes = {[MEMORY_batch] = 3}, .host = {[MEMORY_batch] = 4}};
    CHECK(memory_plan_total(&p) == 3 && memory_plan_host_total(&p) == 4);
    memory_plan_merge_host(&p);
    CHECK(p.bytes[MEMORY_batch] == 7 && memory_plan_host_total(&p) == 0);
}

TEST(memory_plan_warns_if_more_is_needed_than_available)
{
    char *path = file_join(test_folder(), "log.txt");
    struct text log = {0};
    CHECK_STATUS(OK, log_open(path));
    memory_plan_warn((size_t)3 << 30, (size_t)3 << 30);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(!log.len);
    memory_plan_warn((size_t)3 << 30, (size_t)2 << 30);
    memory_plan_warn((size_t)3 << 20, 3000);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(strstr(log.data, "not enough memory: 3.00 GiB required, 2.00 GiB available"));
    CHECK(strstr(log.data, "not enough memory: 3.00 MiB required, 2.93 KiB available"));
    text_release(&log);
    free(path);
}
