// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"
#include "test.h"

TEST(byte_size_has_the_largest_unit_in_which_it_is_at_least_1)
{
    const struct {
        double bytes;
        const char *want;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {2e6, "1.91 MiB"},
                 {(double)((1 << 30) - 1), "1.00 GiB"},
                 {(double)((1 << 30) - (1 << 14)), "1023.98 MiB"},
                 {79.65 * (1 << 30), "79.65 GiB"},
                 {4021.0 * (1 << 30), "4021.00 GiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(byte_size_format(cases[i].bytes).text, cases[i].want))
            fail_msg("%s, expected %s", byte_size_format(cases[i].bytes).text, cases[i].want);
}
