// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/counted.h"

TEST(only_one_of_something_is_singular)
{
    CHECK(!strcmp(counted_format(1, "token").text, "1 token"));
    CHECK(!strcmp(counted_format(0, "token").text, "0 tokens"));
    CHECK(!strcmp(counted_format(-1, "step").text, "-1 steps"));
    CHECK(!strcmp(counted_format(INT64_MAX, "row").text, "9223372036854775807 rows"));
}
