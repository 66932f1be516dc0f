// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/arguments.h"

struct values {
    bool json, dry_run;
    int64_t steps;
    double rate;
    const char *name;
    int color;
    struct flag_list words;
};

static const struct usage usage = {
    "do",
    {{NULL, {USAGE_ONE(FILE, "THING"), USAGE_OPTIONAL(FILE, "OTHER"), USAGE_SETTINGS}}},
    "Does it.",
};

/* Parses the words up to NULL as the arguments of command "do". */
static enum status read(struct arguments *a, struct values *v, const char *const *words)
{
    const struct flag flags[] = {
        {"json", FLAG_SWITCH, &v->json, "as JSON"},
        {"dry-run", FLAG_SWITCH, &v->dry_run, "does nothing"},
        {"steps", FLAG_INT(0, 100), &v->steps, "how many"},
        {"rate", FLAG_REAL(-1e9, 0.5), &v->rate, "how fast"},
        {"name", FLAG_TEXT, &v->name, "whose"},
        {"paint", FLAG_CHOICE("red|green|blue"), &v->color, "which color"},
        {"word", FLAG_LIST, &v->words, "may be repeated"},
        {0},
    };
    char *argv[32] = {(char *)(uintptr_t) "do"};
    int argc = 1;
    for (; words[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)words[argc - 1];
    return arguments_read(a, &(struct arguments_spec){&usage, flags}, argc, argv);
}
#define READ(a, v, ...) read(a, v, (const char *const[]){__VA_ARGS__, NULL})

TEST(arguments_are_words_flags_and_settings_in_any_order)
{
    struct arguments a;
    struct values v = {.name = "nobody"};
    CHECK_STATUS(OK, READ(&a, &v, "--steps", "12", "x.toml", "optimizer.lr=1e-3", "--rate=0.5",
                          "--json", "a.b=c/d"));
    CHECK(v.json && v.steps == 12 && v.rate == 0.5 && !strcmp(v.name, "nobody"));
    CHECK(a.num_words == 1 && !strcmp(a.words[0], "x.toml") && a.num_settings == 2 && !a.help);
    CHECK(!strcmp(a.settings[1], "a.b=c/d"));
}

TEST(flags_may_be_spelled_as_in_python)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(OK, READ(&a, &v, "x", "--json", "True", "--dry_run", "False"));
    CHECK(v.json && !v.dry_run && a.num_words == 1);
}

TEST(arguments_with_a_path_before_the_equals_sign_are_words)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(OK, READ(&a, &v, "./dir/lr=3.toml", "plain=word"));
    CHECK(a.num_words == 2 && a.num_settings == 0);
}

TEST(arguments_after_two_dashes_are_words)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(OK, READ(&a, &v, "--", "--steps", "a.b=c"));
    CHECK(a.num_words == 2 && !strcmp(a.words[0], "--steps") && v.steps == 0);
}

TEST(arguments_reject_unknown_flags_with_a_suggestion)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--stops", "3"));
    CHECK_MESSAGE("unknown flag --stops; did you mean --steps?");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--quite-something-else"));
    CHECK_MESSAGE("unknown flag --quite-something-else; `llamero do --help` lists the flags");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--steps", "3x"));
    CHECK_MESSAGE("--steps: \"3x\": expected a whole number from 0 to 100");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--steps=99999999999999999999"));
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--rate="));
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--steps"));
    CHECK_MESSAGE("--steps requires a value");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--json=yes"));
    CHECK_MESSAGE("--json does not take a value");
}

TEST(numbers_out_of_bounds_and_unknown_choices_are_errors_that_say_what_is_allowed)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--steps", "-1"));
    CHECK_MESSAGE("--steps: \"-1\": expected a whole number from 0 to 100");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--steps", "101"));
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--steps", "2.5"));
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--rate", "0.51"));
    CHECK_MESSAGE("--rate: \"0.51\": expected a number from -1000000000 to 0.5");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--paint", "pink"));
    CHECK_MESSAGE("--paint: \"pink\": expected red, green or blue");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--paint=gren"));
    CHECK_MESSAGE("expected red, green or blue; did you mean \"green\"?");
    CHECK_STATUS(OK, READ(&a, &v, "x", "--steps", "007", "--rate", ".5", "--paint", "BLUE"));
    CHECK(v.steps == 7 && v.rate == 0.5 && v.color == 2);
}

TEST(arguments_reject_a_wrong_number_of_words)
{
    struct arguments a;
    struct values v = {0};
    const char *many[101];
    for (int i = 0; i < 100; i++) many[i] = "word";
    many[29] = NULL;
    CHECK_STATUS(USAGE, READ(&a, &v, "--json"));
    CHECK_MESSAGE("do: expected at least 1 argument (THING), got 0\nusage: llamero do THING "
                  "[OTHER] [section.key=value ...]");
    CHECK_STATUS(USAGE, read(&a, &v, many));
    CHECK_MESSAGE("do: unexpected argument \"word\"\nusage: llamero do THING [OTHER] "
                  "[section.key=value ...]");
}

TEST(settings_are_refused_by_a_command_that_takes_none)
{
    struct arguments a;
    char *argv[] = {(char[]){"do"}, (char[]){"x"}, (char[]){"optimizer.lr=1"}, NULL};
    char *plain[] = {(char[]){"do"}, (char[]){"--"}, (char[]){"optimizer.lr=1"}, NULL};
    const struct usage thing = {"do", {{NULL, {USAGE_ONE(FILE, "THING")}}}, "Does it."};
    const struct arguments_spec spec = {&thing, (const struct flag[]){{0}}};
    CHECK_STATUS(USAGE, arguments_read(&a, &spec, 3, argv));
    CHECK_MESSAGE("do: \"optimizer.lr=1\" looks like a setting, which this command does not take");
    CHECK_STATUS(OK, arguments_read(&a, &spec, 3, plain));
}

TEST(arguments_accept_only_finite_numbers)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--rate", "nan"));
    CHECK_MESSAGE("--rate: \"nan\": expected a number");
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--rate", "inf"));
    CHECK_STATUS(USAGE, READ(&a, &v, "x", "--rate", "1e999"));
    CHECK_STATUS(OK, READ(&a, &v, "x", "--rate", "-1e9"));
    CHECK(v.rate == -1e9);
}

TEST(too_few_arguments_print_only_the_usage_line)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(USAGE, READ(&a, &v, "--json"));
    CHECK(!strstr(status_message(), "Does it."));
}

TEST(arguments_with_dashes_and_a_dot_are_settings_as_in_torchtitan)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(OK, READ(&a, &v, "x.toml", "--training.steps", "100", "--optimizer.lr=1e-3",
                          "--compile.enable", "--json", "--parallelism.data_parallel_shard_degree",
                          "-1", "--metrics.enable_tensorboard", "--activation-checkpoint.mode=full",
                          "--training.local-batch-size=4", "--model.no-rope-layer-interval", "4",
                          "--checkpoint.no-enable", "y"));
    static const char *const want[] = {"training.steps=100",
                                       "optimizer.lr=1e-3",
                                       "compile.enable=true",
                                       "parallelism.data_parallel_shard_degree=-1",
                                       "metrics.enable_tensorboard=true",
                                       "activation_checkpoint.mode=full",
                                       "training.local_batch_size=4",
                                       "model.no_rope_layer_interval=4",
                                       "checkpoint.enable=false"};
    CHECK(v.json && a.num_words == 2 && !strcmp(a.words[1], "y") && a.num_settings == 9);
    for (int i = 0; i < 9; i++) CHECK(!strcmp(a.settings[i], want[i]));
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1), longest[sizeof longest - 1] = 0;
    CHECK_STATUS(USAGE, READ(&a, &v, "x.toml", "--job.description", longest));
    CHECK_MESSAGE("write job.description=VALUE");
    CHECK_STATUS(USAGE, READ(&a, &v, "--jsn=a.b", "x"));
    CHECK_MESSAGE("did you mean --json?");
}

TEST(a_flag_of_a_list_may_be_repeated)
{
    struct arguments a;
    struct values v = {0};
    CHECK_STATUS(OK, READ(&a, &v, "--word", "one", "x.toml", "--word=two"));
    CHECK(v.words.count == 2 && a.num_words == 1);
    CHECK(!strcmp(v.words.items[0], "one") && !strcmp(v.words.items[1], "two"));
    v.words.count = 64;
    CHECK_STATUS(USAGE, READ(&a, &v, "--word", "one", "x.toml"));
    CHECK_MESSAGE("--word: at most 64");
}
