// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "doctor/build.h"

TEST(a_build_is_described_by_lines_with_aligned_values)
{
    struct text out = {0};
    build_describe(&out);
    CHECK(strstr(out.data, "zstd ") && strstr(out.data, "on this machine: "));
    char *next;
    for (char *line = strtok_r(out.data, "\n", &next); line; line = strtok_r(NULL, "\n", &next))
        CHECK(strlen(line) > 11 && line[10] == ' ' && line[11] != ' ');
    text_release(&out);
}
