// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_parse.h"

TEST(variables_can_be_set_from_themselves_and_unset)
{
    struct shell s;
    shell_init(&s, "a.sh", (struct shell_files){0});
    shell_set(&s, "A", "1");
    shell_set(&s, "A", shell_get(&s, "A"));
    CHECK(!strcmp(shell_get(&s, "A"), "1") && !shell_get(&s, "B"));
    shell_unset(&s, "A");
    CHECK(!shell_get(&s, "A"));
    shell_release(&s);
}

TEST(given_variables_override_values_known_only_at_run_time)
{
    struct shell s;
    shell_init(&s, "x.sh", (struct shell_files){0});
    CHECK(shell_give(&s, "GPUS", "8") && shell_give(&s, "N", "2") && !shell_give(&s, "a-b", "1"));
    const char script[] = "GPUS=$(nvidia-smi)\nN=3\nX=$((GPUS * N))\n";
    CHECK_STATUS(OK, shell_parse(&s, script, sizeof script - 1, 1));
    CHECK(!strcmp(shell_get(&s, "X"), "24"));
    shell_release(&s);
}

TEST(unexpanded_commands_and_variables_are_unknown)
{
    CHECK(shell_is_unknown("a$(b...)") && shell_is_unknown("${HOME}/x"));
    CHECK(!shell_is_unknown("$5") && !shell_is_unknown("a(b)"));
    CHECK(shell_is_name("A_1", 3) && !shell_is_name("1A", 2) && !shell_is_name("", 0));
}
