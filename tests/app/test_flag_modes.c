// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/flag_modes.h"

static enum status check(const char *mode, uint64_t given)
{
    static const struct flag flags[] = {
        {"shared", FLAG_SWITCH, NULL, "all of them: read it"},
        {"one", FLAG_SWITCH, NULL, "show: decode"},
        {"two", FLAG_INT(0, 9), NULL, "show, stats: how many"},
        {"word", FLAG_CHOICE("show|stats"), NULL, "which: a value, not a mode"},
        {0},
    };
    return flag_modes_check(&(struct flag_modes){"data ", "show|stats|find", mode}, flags, given);
}

TEST(a_flag_of_another_mode_is_an_error_that_names_its_modes)
{
    CHECK_STATUS(OK, check("show", 15));
    CHECK_STATUS(OK, check("find", 1 | 8));
    CHECK_STATUS(OK, check("stats", 4));
    CHECK_STATUS(USAGE, check("stats", 2));
    CHECK_MESSAGE("--one requires data show; it has no effect with data stats");
    CHECK_STATUS(USAGE, check("find", 4));
    CHECK_MESSAGE("--two requires data show or data stats; it has no effect with data find");
}
