// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/log.h"
#include "train/memory.h"

TEST(memory_of_a_rank_adds_up_over_its_kinds)
{
    struct memory_plan p = {0};
    for (int i = 0; i < MEMORY_COUNT; i++) p.bytes[i] = (size_t)1 << i;
    CHECK(memory_total(&p) == ((size_t)1 << MEMORY_COUNT) - 1);
    CHECK(!strcmp(memory_name(MEMORY_gradients), "gradients"));
    CHECK(strstr(memory_text(MEMORY_optimizer), "moments"));
}

TEST(who_needs_more_memory_than_is_available_is_warned)
{
    char *path = file_join(test_folder(), "log.txt");
    struct text log = {0};
    CHECK_STATUS(OK, log_open(path));
    memory_warn((size_t)3 << 30, (size_t)3 << 30);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(!log.len);
    memory_warn((size_t)3 << 30, (size_t)2 << 30);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(strstr(log.data, "3.00 GiB of memory are needed and 2.00 GiB are available"));
    text_release(&log);
    free(path);
}
