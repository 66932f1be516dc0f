// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "runs/run_format.h"

static bool formats_as(void (*format)(struct text *, double), double value, const char *want)
{
    struct text t = {0};
    format(&t, value);
    bool same = !strcmp(t.data, want);
    text_release(&t);
    return same;
}

TEST(run_format_has_three_digits_of_a_count)
{
    CHECK(formats_as(run_format_count, 0, "0") && formats_as(run_format_count, 999, "999"));
    CHECK(formats_as(run_format_count, 1000, "1.00K"));
    CHECK(formats_as(run_format_count, 999499, "999K"));
    CHECK(formats_as(run_format_count, 999500, "1.00M"));
    CHECK(formats_as(run_format_count, 12.34e9, "12.3B"));
    CHECK(formats_as(run_format_count, 5e15, "5000T"));
}

TEST(run_format_has_one_unit_of_time)
{
    CHECK(formats_as(run_format_age, 0.4, "0s") && formats_as(run_format_age, 99, "99s"));
    CHECK(formats_as(run_format_age, 120, "2m") && formats_as(run_format_age, 7200, "2h"));
    CHECK(formats_as(run_format_age, 86400, "24h") && formats_as(run_format_age, 864000, "10d"));
}
