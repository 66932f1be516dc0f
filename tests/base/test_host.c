// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include "test.h"

#include <unistd.h>

TEST(host_name_is_cut_off_and_padded_with_zeros)
{
    char want[256] = "", name[300], start[3];
    CHECK(!gethostname(want, sizeof want - 1) && strlen(want) >= 2);
    memset(name, 'x', sizeof name), memset(start, 'x', sizeof start);
    host_name(name, sizeof name);
    CHECK(!strcmp(name, want));
    for (size_t i = strlen(want); i < sizeof name; i++) CHECK(!name[i]);
    host_name(start, sizeof start);
    CHECK(!strncmp(start, want, 2) && !start[2]);
}
