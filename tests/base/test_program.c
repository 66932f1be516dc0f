// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "base/program.h"

TEST(program_build_is_the_same_each_time)
{
    struct text first = {0}, again = {0};
    program_add_build(&first), program_add_build(&again);
    CHECK(first.len >= 16 && !strcmp(first.data, again.data));
    CHECK(strspn(first.data, "0123456789abcdef") == first.len);
    text_release(&first), text_release(&again);
}

TEST(another_build_of_the_program_has_another_build_id)
{
    struct text own = {0}, other = {0};
    const char *copy = test_path(test_folder(), "llamero");
    runs_copy_other_build(copy);
    CHECK(LLAMERO(&own, NULL, "--version") == 0);
    CHECK(test_run((const char *const[]){copy, "--version", NULL}, &other, NULL) == 0);
    CHECK(strstr(own.data, ", build ") && strstr(other.data, ", build "));
    CHECK(strcmp(own.data, other.data) != 0);
    text_release(&own), text_release(&other);
}
