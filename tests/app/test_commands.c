// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/commands.h"

TEST(commands_are_found_by_their_names)
{
    CHECK(commands_find("train") && !strcmp(commands_find("train")->name, "train"));
    CHECK(!commands_find("trai") && !commands_find(""));
    CHECK(!strcmp(commands_suggest("trian"), "train"));
    CHECK(!commands_suggest("no-such-command-at-all"));
}
