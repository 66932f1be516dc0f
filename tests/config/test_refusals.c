// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/refusals.h"

TEST(refusals_print_the_line_that_accepts_all_of_them)
{
    struct refusals r = {0};
    const char *names[] = {"x.old", "b.two"};
    struct accept_config none = {{NULL, 0}}, some = {{names, 2}};
    CHECK_STATUS(OK, refusals_check(&r, &none));
    refusals_add(&r, "a.one", "f:1: a.one = 1: why");
    refusals_add(&r, "b.two", "f:2: b.two = 2: because");
    refusals_add(&r, "a.one", "f:3: a.one again");
    CHECK_STATUS(CONFIG, refusals_check(&r, &none));
    CHECK_MESSAGE("2 settings change the result and are not supported");
    CHECK_MESSAGE("config.accept_loss=a.one,b.two\n");
    CHECK_MESSAGE("accept_loss = [\"a.one\", \"b.two\"]\nf:1: a.one = 1: why\nf:2: b.two = 2");
    CHECK(!strstr(status_message(), "again"));
    CHECK_STATUS(CONFIG, refusals_check(&r, &some)); /* keeps what it has */
    CHECK_MESSAGE("1 setting changes the result and is not supported");
    CHECK_MESSAGE("config.accept_loss=x.old,b.two,a.one\n");
    names[0] = "a.one";
    CHECK_STATUS(OK, refusals_check(&r, &some));
    refusals_release(&r);
}
