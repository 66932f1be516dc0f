// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/nccl/stub.h"
#include "test.h"

#include <stdlib.h>

TEST(nccl_describe_names_the_version)
{
    struct text is = {0};
    CHECK_STATUS(OK, nccl_describe(&is));
    CHECK(!strcmp(is.data, "NCCL 2.28.3"));
    text_release(&is);
}

TEST(nccl_rejects_versions_that_cannot_abort_communicators_together)
{
    struct queue queue = {.num_threads = 1};
    struct text is = {0};
    stub_set_version(22105);
    CHECK_STATUS(UNSUPPORTED, nccl_load());
    CHECK_MESSAGE("NCCL 2.21.5 is too old: install 2.22 or later");
    CHECK_STATUS(UNSUPPORTED, nccl_describe(&is));
    CHECK_STATUS(UNSUPPORTED, nccl_self_test(&queue));
    stub_set_version(22203);
    CHECK_STATUS(OK, nccl_load());
    stub_set_version(22803);
    CHECK(!is.len);
}

/* Otherwise a transfer that waits behind another of its group would hold up those of all others. */
TEST(nccl_does_not_order_transfers_of_different_groups)
{
    struct text log = {0};
    const char *path = test_path(test_folder(), "log.txt"), *warning;
    for (int has_pipeline = 0; has_pipeline < 2; has_pipeline++) {
        unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
        nccl_set_launch_order(has_pipeline);
        CHECK(!strcmp(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0"));
    }
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    CHECK_STATUS(OK, log_open(path));
    nccl_set_launch_order(false); /* the user's: slower, and a remedy for some RCCL */
    CHECK(!strcmp(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1"));
    for (int i = 0; i < 2; i++) nccl_set_launch_order(true);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK(!strcmp(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0"));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK((warning = strstr(log.data, "warning: NCCL_LAUNCH_ORDER_IMPLICIT=1 is ignored: with")));
    CHECK(!strstr(warning + 1, "warning: ")); /* only once */
    text_release(&log);
}

TEST(nccl_sums_without_nvlink_sharp_unless_the_user_wants_it)
{
    unsetenv("NCCL_NVLS_ENABLE");
    nccl_request_fixed_order();
    CHECK(!strcmp(getenv("NCCL_NVLS_ENABLE"), "0"));
    setenv("NCCL_NVLS_ENABLE", "2", 1);
    nccl_request_fixed_order();
    CHECK(!strcmp(getenv("NCCL_NVLS_ENABLE"), "2"));
    unsetenv("NCCL_NVLS_ENABLE");
}

TEST(nccl_warns_of_more_queues_than_an_amd_gpu_runs)
{
    struct text warning = {0};
    enum { OF_QUEUE = 4, CHANNELS = 4, EACH = 1 + RCCL_STREAMS };
    nccl_warn_of_amd_queues(OF_QUEUE + CHANNELS * EACH, &warning);
    CHECK(!warning.len);
    nccl_warn_of_amd_queues(OF_QUEUE + (CHANNELS + 1) * EACH, &warning); /* and FSDP */
    CHECK(strstr(warning.data, "opens up to 26 hardware queues, and an AMD GPU runs 24"));
    text_release(&warning);
}
