// SPDX-License-Identifier: Apache-2.0
#include "app/launch_flags.h"
#include "test.h"

#include <stdlib.h>

TEST(launch_flags_become_settings)
{
    struct launch_flags f = {LAUNCH_UNSET, "0,2"};
    struct arguments a = {.num_settings = 1, .settings = {"x.y=1"}};
    CHECK_STATUS(OK, launch_flags_apply(&f, &a));
    CHECK(a.num_settings == 2 && !strcmp(a.settings[1], "device.gpus=0,2"));
    f = (struct launch_flags)LAUNCH_NONE;
    CHECK_STATUS(OK, launch_flags_apply(&f, &a));
    CHECK(a.num_settings == 2);
}

TEST(launch_flags_exclude_each_other)
{
    struct arguments a = {0};
    CHECK_STATUS(USAGE, launch_flags_apply(&(struct launch_flags){2, "2"}, &a));
    CHECK_MESSAGE("exclude each other");
}

/* One rank is this process; under a launcher device.gpus only selects GPUs. */
TEST(launch_flags_start_nothing_for_one_rank_or_under_a_launcher)
{
    struct launch_flags none = LAUNCH_NONE, one = {1, ""};
    bool is_rank = false;
    CHECK_STATUS(OK, launch_flags_start(&none, "", &is_rank));
    CHECK(is_rank);
    is_rank = false;
    CHECK_STATUS(OK, launch_flags_start(&one, "", &is_rank));
    CHECK(is_rank);
    is_rank = false;
    setenv("PMI_RANK", "0", 1), setenv("PMI_SIZE", "2", 1);
    CHECK_STATUS(OK, launch_flags_start(&none, "all", &is_rank));
    CHECK(is_rank);
    CHECK_STATUS(CONFIG, launch_flags_start(&(struct launch_flags){2, ""}, "", &is_rank));
    CHECK_MESSAGE("has started 2 ranks already, and each would start 2: use only one of the two");
    unsetenv("PMI_RANK"), unsetenv("PMI_SIZE");
}
