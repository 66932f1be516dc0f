// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/problems.h"

#include <string.h>

static enum status fail_with(const char *message) { FAIL(MISSING, "%s", message); }
static enum status fail_differently(void) { FAIL(CONFIG, "another"); }

TEST(problems_keep_every_message_once_in_order)
{
    struct problems p = {0};
    CHECK_STATUS(OK, problems_add(&p, STATUS_OK));
    CHECK_STATUS(OK, problems_report(&p));
    CHECK_STATUS(MISSING, problems_add(&p, fail_with("one")));
    CHECK_STATUS(CONFIG, problems_add(&p, fail_differently()));
    CHECK_STATUS(MISSING, problems_add(&p, fail_with("one")));
    CHECK(p.count == 2 && !strcmp(p.messages[0], "one") && !strcmp(p.messages[1], "another"));
    CHECK_STATUS(MISSING, problems_report(&p));
    CHECK(status_is_reported()); /* both are in the log */
    CHECK_MESSAGE("one");
    problems_release(&p);
}

TEST(problems_leave_a_single_one_to_be_reported)
{
    struct problems p = {0};
    problems_add(&p, fail_with("one"));
    fail_differently();
    CHECK_STATUS(MISSING, problems_report(&p));
    CHECK(!status_is_reported());
    CHECK_MESSAGE("one");
    problems_release(&p);
}
