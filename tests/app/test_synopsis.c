// SPDX-License-Identifier: Apache-2.0
#include "app/synopsis.h"
#include "test.h"

static const char usage[] = "do list|show FOLDER [--all]\n"
                            "       llamero do send FROM hf://TO[@BRANCH] [--text TEXT] MORE...\n\n"
                            "Words such as list here are no synopsis.";
static const char plain[] = "make THING [section.key=value ...]";

TEST(a_subcommand_is_known_or_the_closest_is_suggested)
{
    CHECK(synopsis_has_subcommands(usage) && !synopsis_has_subcommands(plain));
    CHECK_STATUS(OK, synopsis_check_subcommand(usage, "do", "show"));
    CHECK_STATUS(OK, synopsis_check_subcommand(usage, "do", "send"));
    CHECK_STATUS(OK, synopsis_check_subcommand(plain, "make", "anything"));
    CHECK_STATUS(OK, synopsis_check_subcommand(plain, "make", NULL));
    CHECK_STATUS(USAGE, synopsis_check_subcommand(usage, "do", "sned"));
    CHECK_MESSAGE("do: unknown subcommand \"sned\"; did you mean \"send\"?");
    CHECK_STATUS(USAGE, synopsis_check_subcommand(usage, "do", "inspect"));
    CHECK_MESSAGE("did you mean \"show\"?");
    CHECK_STATUS(USAGE, synopsis_check_subcommand(usage, "do", "xyzzy"));
    CHECK_MESSAGE("do: unknown subcommand \"xyzzy\"; expected list, show or send");
    CHECK_STATUS(USAGE, synopsis_check_subcommand(usage, "do", NULL));
    CHECK_MESSAGE("do: expected a subcommand: list, show or send");
}

TEST(the_names_of_arguments_are_those_of_the_synopsis)
{
    struct text names = {0};
    synopsis_add_names(plain, NULL, 1, &names);
    CHECK(!strcmp(names.data, "THING"));
    text_clear(&names);
    synopsis_add_names(usage, "send", 3, &names);
    CHECK(!strcmp(names.data, "FROM, hf://TO and MORE"));
    text_clear(&names);
    synopsis_add_names(usage, "show", 1, &names);
    CHECK(!strcmp(names.data, "FOLDER"));
    text_release(&names);
}
