// SPDX-License-Identifier: Apache-2.0
#include "hub/env.h"
#include "test.h"

TEST(env_treats_an_empty_variable_as_unset)
{
    unsetenv("LLAMERO_TEST_VARIABLE");
    CHECK(!env_find("LLAMERO_TEST_VARIABLE"));
    setenv("LLAMERO_TEST_VARIABLE", "", 1);
    CHECK(!env_find("LLAMERO_TEST_VARIABLE"));
    setenv("LLAMERO_TEST_VARIABLE", "a", 1);
    CHECK(!strcmp(env_find("LLAMERO_TEST_VARIABLE"), "a"));
    unsetenv("LLAMERO_TEST_VARIABLE");
}

TEST(env_booleans_follow_huggingface_hub_and_other_words_are_errors)
{
    static const struct {
        const char *value;
        bool is_true, is_wrong;
    } cases[] = {{"1", true, false},     {"on", true, false},     {"Yes", true, false},
                 {"TRUE", true, false},  {"0", false, false},     {"off", false, false},
                 {"No", false, false},   {"false", false, false}, {"", false, false},
                 {"maybe", false, true}, {"y", false, true},      {"2", false, true},
                 {"true ", false, true}};
    bool value = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("LLAMERO_TEST_VARIABLE", cases[i].value, 1);
        enum status st = env_read_bool("LLAMERO_TEST_VARIABLE", &value);
        CHECK(st == (cases[i].is_wrong ? STATUS_CONFIG : STATUS_OK));
        CHECK(value == cases[i].is_true);
        if (st) CHECK_MESSAGE("environment variable LLAMERO_TEST_VARIABLE=");
    }
    unsetenv("LLAMERO_TEST_VARIABLE");
    CHECK_STATUS(OK, env_read_bool("LLAMERO_TEST_VARIABLE", &value));
    CHECK(!value);
}
