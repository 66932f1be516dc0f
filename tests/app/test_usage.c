// SPDX-License-Identifier: Apache-2.0
#include "app/usage.h"
#include "test.h"

static const struct usage several = {
    "do",
    {{"list|show", {USAGE_ONE(FOLDER, "FOLDER"), USAGE_FLAGS("[--all]")}},
     {"send",
      {USAGE_ONE(FILE, "FROM"),
       {ITEM_FILE, "hf://TO", false, false, "hf://TO[@BRANCH]"},
       USAGE_FLAGS("[--text TEXT]"),
       USAGE_SOME(KEY, "MORE")}},
     {"clear", {USAGE_SETTINGS}}},
    "Does it.",
};
static const struct usage plain = {
    "make",
    {{NULL, {USAGE_ONE(FILE, "CONFIG|THING")}},
     {NULL, {USAGE_OPTIONAL(FILE, "CONFIG|THING"), USAGE_OPTIONAL(FILE, "X")}}},
    "Makes it.",
};

TEST(a_subcommand_is_known_or_the_closest_is_suggested)
{
    CHECK(usage_has_subcommands(&several) && !usage_has_subcommands(&plain));
    CHECK_STATUS(OK, usage_check_subcommand(&several, "show"));
    CHECK_STATUS(OK, usage_check_subcommand(&several, "send"));
    CHECK_STATUS(OK, usage_check_subcommand(&plain, "anything"));
    CHECK_STATUS(OK, usage_check_subcommand(&plain, NULL));
    CHECK_STATUS(USAGE, usage_check_subcommand(&several, "sned"));
    CHECK_MESSAGE("do: unknown subcommand \"sned\"; did you mean \"send\"?");
    CHECK_STATUS(USAGE, usage_check_subcommand(&several, "inspect"));
    CHECK_MESSAGE("did you mean \"show\"?");
    CHECK_STATUS(USAGE, usage_check_subcommand(&several, "xyzzy"));
    CHECK_MESSAGE("do: unknown subcommand \"xyzzy\"; expected list, show, send or clear");
    CHECK_STATUS(USAGE, usage_check_subcommand(&several, NULL));
    CHECK_MESSAGE("do: expected a subcommand: list, show, send or clear");
}

TEST(a_synopsis_shows_how_often_each_argument_may_be_given)
{
    static const char *const want[] = {"do list|show FOLDER [--all]",
                                       "do send FROM hf://TO[@BRANCH] [--text TEXT] MORE...",
                                       "do clear [section.key=value ...]"};
    const struct synopsis *s = NULL;
    struct text line = {0};
    for (int i = 0; i < 3; i++) {
        s = usage_next(&several, s, NULL);
        text_clear(&line);
        usage_add_synopsis(&several, s, &line);
        CHECK(!strcmp(line.data, want[i]));
    }
    CHECK(!usage_next(&several, s, NULL));
    text_clear(&line);
    usage_add_synopsis(&plain, &plain.synopses[1], &line);
    CHECK(!strcmp(line.data, "make [CONFIG|THING] [X]"));
    text_release(&line);
}

TEST(a_usage_limits_the_number_of_arguments)
{
    int least, most;
    usage_limits(&several, "show", &least, &most);
    CHECK(least == 1 && most == 1);
    usage_limits(&several, "send", &least, &most);
    CHECK(least == 3 && most == USAGE_UNLIMITED);
    usage_limits(&several, "clear", &least, &most);
    CHECK(least == 0 && most == 0);
    usage_limits(&plain, "", &least, &most);
    CHECK(least == 0 && most == 2);
}

TEST(an_argument_is_what_the_synopsis_has_there)
{
    const struct synopsis *send = usage_next(&several, NULL, "send");
    CHECK(usage_argument(send, 1)->kind == ITEM_FILE && usage_argument(send, 9)->kind == ITEM_KEY);
    CHECK(!usage_argument(&plain.synopses[0], 1) && !usage_next(&several, send, "send"));
    CHECK(usage_takes_settings(&several) && !usage_takes_settings(&plain));
    CHECK(!usage_takes_config(&several) && usage_takes_config(&plain));
}

TEST(missing_arguments_are_named)
{
    struct text names = {0};
    usage_add_names(plain.synopses, 1, &names);
    CHECK(!strcmp(names.data, "CONFIG|THING"));
    text_clear(&names);
    usage_add_names(usage_next(&several, NULL, "send"), 3, &names);
    CHECK(!strcmp(names.data, "FROM, hf://TO and MORE"));
    text_release(&names);
}
